"""The fields of errors next to their message, and messages with text from outside."""

from claimd.common import errors


def test_a_claim_that_can_be_served_soon_says_when():
    soon = errors.NotReadyError("soon", patience=20.0, retry_after=1.5)
    assert (str(soon), soon.patience, soon.retry_after) == ("soon", 20.0, 1.5)
    assert errors.NotReadyError("soon", patience=1.0).retry_after == 0.0


def test_a_claim_error_may_name_the_device_that_nobody_else_could_get():
    for error in (
        errors.ClaimError("hot", device="gpu-0"),
        errors.NotReadyError("hot", patience=1.0, device="gpu-0"),
    ):
        assert error.device == "gpu-0"
    assert errors.ClaimError("of the claim").device == ""


def test_messages_and_details_are_lines():
    assert str(errors.ClaimError("a\nb")) == "a\\nb"
    fatal = errors.UsageError("a\nb", details=["c\nd", "e"])
    assert (str(fatal), fatal.details) == ("a\\nb", ("c\\nd", "e"))
