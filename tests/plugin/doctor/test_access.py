"""What is said of rights, by facts alone. test_api asks a server for them."""

from plugin.doctor import access, ask, rights

DRIVER = "gpu.claimd.dev"


def test_what_the_role_has_to_say_for_another_driver_name():
    named = next(right for right in rights.RIGHTS if right.name == rights.DRIVER)
    for driver, is_told in (("gpu.example.com", True), (DRIVER, False)):
        (finding,) = access.judge_rights("a", ask.Answer(value=(named,)), driver)
        assert finding.remedy.endswith(f"resourceNames have to say {driver}") == is_told
        assert "kubectl apply -k deploy/base\n" in finding.remedy
