"""GpuConfigs that are wrong are refused when they are written, by the policy of the manifests, in the words of prepare."""

import json
import re
from pathlib import Path

import pytest
import yaml

from claimd.common import errors
from claimd.common.names import CONFIG_API_VERSION
from claimd.node.prepare import gpu_config
from claimd.sim.apiserver.server import Options, serve
from claimd_devices.gpu import CAPABILITIES
from tests import test_rights
from tests.support import manifests, worlds

ROOT = Path(__file__).parents[1]
CASES = yaml.safe_load((ROOT / "tests/cases/gpu_configs.yaml").read_text())
MANIFEST = ROOT / "deploy/base/gpu-config.yaml"
DRIVER = "gpu.claimd.dev"
VERSIONS = ("v1", "v1beta2", "v1beta1")
SOURCES = {
    "resourceclaims": gpu_config.CLAIM,
    "resourceclaimtemplates": gpu_config.CLAIM,
    "deviceclasses": gpu_config.CLASS,
}


class Cluster(test_rights.Cluster):
    """An API server with the policy; the administrator writes, whom it holds like everybody."""

    async def set_up(self):
        for document in manifests.read(MANIFEST.read_text()):
            await self.admin("POST", test_rights.COLLECTIONS[document["kind"]], document)

    async def tear_down(self):
        """The policy is away; what it refuses is taken."""
        for document in manifests.read(MANIFEST.read_text()):
            name = document["metadata"]["name"]
            await self.admin("DELETE", f"{test_rights.COLLECTIONS[document['kind']]}/{name}")

    async def refusal(self, plural, version, *parameters, driver=DRIVER):
        """Returns what is said of an object with these configurations; an empty text if it is taken."""
        path, document = written(plural, version, parameters, driver)
        status, answer = await self.ask("POST", f"{path}?dryRun=All", document, admin=True)
        if status == 201:
            return ""
        assert (status, answer["reason"]) == (422, "Invalid"), answer
        return answer["message"].partition(" denied request: ")[2] or answer["message"]


def written(plural, version, parameters, driver=DRIVER, name="x"):
    """The collection, and an object with these configurations."""
    config = [{"opaque": {"driver": driver, "parameters": each}} for each in parameters]
    exactly = {"deviceClassName": DRIVER}
    request = {"name": "gpu"} | (exactly if version == "v1beta1" else {"exactly": exactly})
    of_claim = {"devices": {"requests": [request], "config": config}}
    specs = {
        "resourceclaims": of_claim,
        "resourceclaimtemplates": {"spec": of_claim},
        "deviceclasses": {"config": config},
    }
    root = f"/apis/resource.k8s.io/{version}"
    place = root if plural == "deviceclasses" else f"{root}/namespaces/default"
    return f"{place}/{plural}", {"metadata": {"name": name}, "spec": specs[plural]}


def said_at_prepare(plural, *parameters):
    """Returns what prepare says of these configurations; an empty text if it takes them."""
    source = "FromClass" if plural == "deviceclasses" else "FromClaim"
    entries = [worlds.opaque(each, source) for each in parameters]
    claim = worlds.claim("c", worlds.result("gpu-0"), config=entries)
    try:
        gpu_config.read_configs(claim, DRIVER)
    except errors.ClaimError as error:
        return str(error)
    return ""


def expected(case, plural):
    """Returns what the case says for this kind."""
    says = case.get("says", "")
    source = SOURCES[plural]
    if isinstance(says, dict):
        says = says.get(source.removeprefix("the "), "")
    return says.replace("{source}", source)


@pytest.fixture
async def cluster():
    async with serve(Options()) as api:
        new_cluster = Cluster(api, "", "")
        await new_cluster.set_up()
        yield new_cluster


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("plural", SOURCES)
async def test_what_is_wrong_is_refused_when_it_is_written(cluster, plural, version):
    different = {}
    for case in CASES:
        said = await cluster.refusal(plural, version, case["parameters"])
        wanted = expected(case, plural)
        if wanted not in said or bool(wanted) != bool(said):
            different[case["name"]] = said
    assert different == {}


@pytest.mark.parametrize("plural", SOURCES)
def test_prepare_says_the_same(plural):
    different = {}
    for case in CASES:
        said, wanted = said_at_prepare(plural, case["parameters"]), expected(case, plural)
        if wanted not in said or bool(wanted) != bool(said):
            different[case["name"]] = said
    assert different == {}


async def test_one_wrong_among_others_is_found(cluster):
    right, wrong = CASES[1]["parameters"], CASES[-1]["parameters"]
    for configs in ([right, wrong], [wrong, right], [right] * 31 + [wrong]):
        said = await cluster.refusal("resourceclaims", "v1", *configs)
        assert said == said_at_prepare("resourceclaims", *configs)
        assert "'grafics' is no capability" in said
    assert await cluster.refusal("resourceclaims", "v1", *[right] * 32) == ""


async def test_several_faults_at_once_are_refused_wherever_prepare_refuses(cluster):
    """Checks each two cases in one document: the policy never takes what prepare refuses."""
    different = []
    for number, first in enumerate(CASES):
        for second in CASES[number + 1 :: 5]:
            merged = first["parameters"] | second["parameters"]
            said = await cluster.refusal("resourceclaims", "v1", merged)
            if bool(said) != bool(said_at_prepare("resourceclaims", merged)):
                different.append((first["name"], second["name"], said))
    assert different == []


async def test_what_is_for_other_drivers_is_not_ours_to_judge(cluster):
    for plural in SOURCES:
        other = {"kind": "Anything", "what": ["ever", None]}
        assert await cluster.refusal(plural, "v1", other, driver="d.example.com") == ""
        assert await cluster.refusal(plural, "v1") == ""


LARGEST = {
    "one value": {"environment": {"A": "x" * 9_900}},
    "values": {"environment": {f"NAME_{number}": "y" * 80 for number in range(90)}},
    "variables": {"environment": {f"A{number}": "" for number in range(850)}},
    "capabilities": {"capabilities": ["video"] * 1000},
    "one name": {"environment": {"A" * 9_900: ""}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
async def test_the_largest_that_the_api_takes_stay_within_the_costs_of_the_language(cluster, name):
    """32 configurations of 10 KiB."""
    document = worlds.gpu_config(**LARGEST[name])
    assert len(json.dumps(document)) < 10 * 1024
    assert await cluster.refusal("deviceclasses", "v1", *[document] * 32) == ""


async def test_what_stands_already_can_be_changed_and_deleted(cluster):
    """Written before the policy was there: its finalizers, labels and status are nobody's concern here."""
    await cluster.tear_down()
    paths = {}
    for plural in SOURCES:
        # Empty, since a patch rewrites the spaces of JSON, which to an API server is a change of the spec.
        collection, document = written(plural, "v1", [{}], name="old")
        await cluster.admin("POST", collection, document)
        paths[plural] = f"{collection}/old"
    await cluster.set_up()

    labelled = {"metadata": {"labels": {"a": "b"}}}
    for path in paths.values():
        await cluster.admin("PATCH", path, labelled, test_rights.MERGE)
    selectors = {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    status, answer = await cluster.ask(
        "PATCH", paths["deviceclasses"], selectors, test_rights.MERGE, admin=True
    )
    assert (status, "this driver takes GpuConfig" in answer["message"]) == (422, True)
    for path in paths.values():
        await cluster.admin("DELETE", path)


def test_the_lists_of_the_policy_are_those_of_prepare():
    """The names of fields and capabilities, what fields hold, the version: each stands in the manifest once more."""
    policy, _ = manifests.read(MANIFEST.read_text())
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert json.loads(variables["fields"]) == list(gpu_config.FIELDS)
    assert json.loads(variables["capabilities"]) == list(CAPABILITIES)
    shapes = dict(re.findall(r'\["(\w+)", "([\w ]+)"\]', variables["shapeless"]))
    assert shapes == gpu_config.SHAPES
    assert set(re.findall(r"claimd\.dev/v\w+", MANIFEST.read_text())) == {CONFIG_API_VERSION}
