from __future__ import annotations

import pytest

from claimd_devices import fake
from claimd_devices.fake import layout
from claimd_devices.fake.gpu import Function


def functions(*words: str) -> list[Function]:
    return layout.functions(fake.parse(words))


def test_words_make_a_description() -> None:
    assert fake.parse(["nvidia:l4=2,driver=nouveau", "roots=2", "amd:radeon,console"]) == {
        "roots": "2",
        "devices": [
            {"model": "nvidia:l4", "count": "2", "driver": "nouveau"},
            {"model": "amd:radeon", "count": "1", "console": True},
        ],
    }


def test_a_machine_stands_for_its_words() -> None:
    assert fake.parse(["machine:mi210"]) == fake.parse(
        ["amd:mi210=4", "roots=2", "numa=2", "bmc:matrox"]
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nvidia:h1000", r"model: 'nvidia:h1000' is unknown, did you mean nvidia:h100"),
        ("h100", r"model: 'h100' is unknown, did you mean nvidia:h100\?: expected one of "),
        ("machine:dgx-h10", r"is unknown, did you mean machine:dgx-h100"),
        (
            "root=2",
            r"model: 'root' is unknown, did you mean roots\?: expected one of nvidia:h100, ",
        ),
        ("zzz", r"model: 'zzz' is unknown: expected one of nvidia:h100, .*machine:uhd770$"),
        ("nvidia:h100=many", "count: 'many' is not a number"),
        ("nvidia:h100=-1", "count: '-1' is not a number"),
        ("nvidia:h100=99999999999", "count: '99999999999' is not at most 4096"),
        ("roots=99999999999", "roots: '99999999999' is not at most 4096"),
        ("numa=99999999999", "numa: '99999999999' is not at most 4096"),
        ("nvidia:h100,colour=red", r"description: 'colour' is not one of model, "),
        ("nvidia:h100,console", "nvidia:h100 has no screen"),
        ("roots=x", "roots: 'x' is not a number"),
        ("nvidia:l4=500", "the buses of PCI domain 0000 do not suffice"),
    ],
)
def test_a_bad_word_is_refused_by_name(word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fake.parse([word])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nvidia:l4,driver=amdgpu", "driver: 'amdgpu' is not a driver of nvidia:l4"),
        ("amd:mi210,mode=cpx", "mode: 'cpx' is not a way to divide amd:mi210"),
        ("amd:mi300x,mode=zpx", "mode: 'zpx' is not a way to divide amd:mi300x"),
        ("nvidia:h100,mode=cpx", "mode: 'cpx' is not an option of nvidia:h100"),
        ("amd:mi300x,mig=2", "mig: '2' is not an option of amd:mi300x"),
        ("nvidia:l4,mig=1", "mig: '1' is not a number of instances of nvidia:l4"),
        ("nvidia:h100,mig=8", "mig: '8' is not what nvidia:h100 has room for"),
        ("nvidia:h100,mig=some", "mig: 'some' is not a number"),
        ("amd:mi300x,kfd=open", "kfd: 'open' is not closed"),
        ("intel:flex170,vfs=32", "vfs: 32 is not at most the 31 virtual functions that intel:f"),
        ("intel:arc,vfs=1", "vfs: 1 is not at most the 0 virtual functions"),
        ("nvidia:l4,domain=xyz", "domain: 'xyz' is not a number"),
    ],
)
def test_an_option_that_a_model_cannot_have_is_refused(word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fake.parse([word])


def test_options_are_listed_as_they_are_taken() -> None:
    models = {"mig": "nvidia:h100", "vfs": "intel:flex170", "console": "amd:radeon"}
    for word in fake.OPTIONS:
        key = word.partition("=")[0]
        option = word.replace("NUMBER", "2").replace("HEX", "a").replace("NAME", "none")
        fake.parse([f"{models.get(key, 'amd:mi300x')},{option}"])
    for word in fake.MACHINE_OPTIONS:
        fake.parse([word.replace("NUMBER", "1")])


def test_each_gpu_has_a_bus_behind_its_own_port() -> None:
    first, second = functions("nvidia:h100=2")
    assert (first.address, first.bridges) == ("0000:11:00.0", ("pci0000:10", "0000:10:01.0"))
    assert (second.address, second.bridges) == ("0000:13:00.0", ("pci0000:12", "0000:12:01.0"))


def test_a_switch_takes_two_buses_more() -> None:
    (function,) = functions("intel:arc")
    assert function.bridges == ("pci0000:10", "0000:10:01.0", "0000:11:00.0", "0000:12:01.0")
    assert function.address == "0000:13:00.0"
    assert function.folder == (
        "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0"
    )


def test_gpus_that_share_a_root_have_ports_of_their_own() -> None:
    layout = functions("nvidia:l4=3", "roots=2")
    assert [function.bridges for function in layout] == [
        ("pci0000:10", "0000:10:01.0"),
        ("pci0000:10", "0000:10:02.0"),
        ("pci0000:13", "0000:13:01.0"),
    ]


def test_on_arm_each_root_has_a_domain_that_begins_at_bus_0() -> None:
    (function,) = functions("nvidia:gb10,domain=f")
    assert function.bridges == ("pci000f:00", "000f:00:00.0")
    assert function.address == "000f:01:00.0"


def test_a_processor_s_own_gpu_and_screens_are_on_the_first_root() -> None:
    layout = functions("bmc:aspeed", "intel:uhd770", "nvidia:l4")
    assert [(function.model.name, function.address) for function in layout] == [
        ("bmc:aspeed", "0000:00:02.0"),
        ("intel:uhd770", "0000:00:03.0"),
        ("nvidia:l4", "0000:11:00.0"),
    ]
    assert layout[0].bridges == ("pci0000:00",)


def test_the_first_root_has_room_for_30() -> None:
    assert functions("nvidia:l4=30", "roots=0")[-1].address == "0000:00:1f.0"
    with pytest.raises(ValueError, match="31 GPUs do not fit on the first PCIe root"):
        functions("nvidia:l4=31", "roots=0")


def test_a_domain_has_room_for_256_buses() -> None:
    assert functions("nvidia:l4=120")[-1].address == "0000:ff:00.0"
    with pytest.raises(ValueError, match="the buses of PCI domain 0000 do not suffice"):
        functions("nvidia:l4=121")
    assert len(functions("nvidia:l4=120", "nvidia:l4=120,domain=1")) == 240


def test_virtual_functions_follow_their_gpu() -> None:
    physical, *virtual = functions("intel:flex170,vfs=9")
    assert physical.address == "0000:13:00.0"
    assert [function.address for function in virtual] == [
        *(f"0000:13:00.{number}" for number in range(1, 8)),
        "0000:13:01.0",
        "0000:13:01.1",
    ]
    assert {function.physical and function.physical.address for function in virtual} == {
        physical.address
    }
    assert [function.index for function in virtual] == list(range(9))
    assert {function.bridges for function in virtual} == {physical.bridges}


def test_drm_counts_in_the_order_of_the_bus() -> None:
    """Cards and render nodes have separate numbers: the screen has no render node."""
    layout = functions("amd:mi300x=2,mode=dpx", "bmc:aspeed", "nvidia:l4,driver=vfio-pci")
    assert [function.drm for function in layout] == [
        {"card0": 0},
        {"card1": 1, "renderD128": 128},
        {"card9": 9, "renderD136": 136},
        {},
    ]
    assert [function.numbers.more_drm for function in layout] == [
        [],
        [(number, 127 + number) for number in range(2, 9)],
        [(number, 127 + number) for number in range(10, 17)],
        [],
    ]


def test_past_64_gpus_drm_goes_on_from_192() -> None:
    layout = functions("nvidia:l4=66")
    assert layout[63].drm == {"card63": 63, "renderD191": 191}
    assert layout[64].drm == {"card193": 193, "renderD192": 192}
    assert layout[65].drm == {"card195": 195, "renderD194": 194}

    # A screen uses a card but no render node, so the cards run out one GPU earlier.
    _, *layout = functions("bmc:aspeed", "nvidia:l4=65")
    assert layout[62].drm == {"card63": 63, "renderD190": 190}
    assert layout[63].drm == {"card192": 192, "renderD191": 191}
    assert layout[64].drm == {"card194": 194, "renderD193": 193}


def test_groups_of_the_iommu_only_where_there_is_one() -> None:
    assert [function.group for function in functions("nvidia:l4=2")] == [-1, -1]
    assert [function.group for function in functions("nvidia:l4=2", "iommu=1")] == [20, 21]
    held = functions("nvidia:l4", "nvidia:l4,driver=vfio-pci")
    assert [function.group for function in held] == [20, 21]


def test_processors_are_there_also_where_the_firmware_tells_of_no_node() -> None:
    assert layout.processors({}) == 1
    assert layout.processors({"numa": "0"}) == 1
    assert layout.processors({"numa": "4"}) == 4
