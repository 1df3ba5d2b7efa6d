from __future__ import annotations

import pytest

from devices import fake
from devices.fake import vendors


def test_models_are_listed_with_what_people_call_them() -> None:
    titles = fake.models()
    assert titles["nvidia:h100"] == "NVIDIA H100 80GB HBM3"
    assert titles["intel:b580"] == "Intel Arc B580"
    assert list(titles) == list(fake.MODELS)
    assert all(title and not title.endswith(".") for title in titles.values())
    assert len(set(titles.values())) == len(titles)


def test_machines_are_listed_with_their_words() -> None:
    assert fake.machines()["machine:l4"] == "nvidia:l4=4 roots=2 numa=2 bmc:aspeed"
    assert list(fake.machines()) == list(fake.MACHINES)


@pytest.mark.parametrize("name", [*fake.MODELS, *fake.MACHINES])
def test_what_is_listed_can_be_written(name: str) -> None:
    assert fake.parse([name])["devices"]


def test_a_model_is_known_by_its_name_and_belongs_to_one_vendor() -> None:
    for name, model in fake.MODELS.items():
        assert model.name == name
        assert model in vendors.of_model(model).models
    assert sum(len(row.models) for row in vendors.VENDORS) == len(fake.MODELS)


@pytest.mark.parametrize(
    ("driver", "model"),
    [
        ("nvidia", "nvidia:l4"),
        ("amdgpu", "amd:radeon"),
        ("i915", "intel:arc"),
        ("xe", "intel:arc"),
    ],
)
def test_the_vendor_of_a_driver(driver: str, model: str) -> None:
    assert vendors.of_driver(driver) is vendors.of_model(fake.MODELS[model])


@pytest.mark.parametrize("driver", ["", "vfio-pci", "nouveau", "ast"])
def test_a_driver_that_is_nobody_s(driver: str) -> None:
    assert vendors.of_driver(driver) is None
