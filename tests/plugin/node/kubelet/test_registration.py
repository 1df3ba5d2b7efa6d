from pathlib import Path

import grpc
import pytest

from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc
from claimd.node.kubelet import dra, registration, server


@pytest.fixture
async def registrar(tmp_path):
    """The servicer, a stub that plays the kubelet, and how often it was told that it is registered."""
    told = []
    servicer = registration.Registration(
        "d.example", Path("/p/dra.sock"), dra.SERVICES, lambda: told.append(1)
    )
    serving = await server.listen(tmp_path / "reg.sock", lambda s: registration.add_to(s, servicer))
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/reg.sock") as channel:
        yield servicer, api_pb2_grpc.RegistrationStub(channel), told
    await serving.stop(0)


async def test_says_who_we_are_and_what_is_served(registrar):
    _, stub, _ = registrar
    info = await stub.GetInfo(api_pb2.InfoRequest())
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "d.example", "/p/dra.sock")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


async def test_registered(registrar):
    servicer, stub, told = registrar
    await stub.GetInfo(api_pb2.InfoRequest())
    assert "did not say" in servicer.last_seen
    await stub.NotifyRegistrationStatus(api_pb2.RegistrationStatus(plugin_registered=True))
    assert told == [1]


async def test_each_registration_is_noticed_also_after_a_restart_of_the_kubelet(registrar):
    servicer, stub, told = registrar
    for count in (1, 2, 3):
        await stub.GetInfo(api_pb2.InfoRequest())
        await stub.NotifyRegistrationStatus(api_pb2.RegistrationStatus(plugin_registered=True))
        assert len(told) == count
        assert servicer.last_seen == ""


async def test_a_refusal_is_logged_with_its_reason(registrar, caplog):
    servicer, stub, told = registrar
    await stub.NotifyRegistrationStatus(
        api_pb2.RegistrationStatus(plugin_registered=False, error="too old")
    )
    assert told == []
    assert (
        "refused to register us: too old (we offered v1.DRAPlugin, v1beta1.DRAPlugin at /p/dra.sock)"
        in caplog.text
    )
    assert "too old" in servicer.last_seen


async def test_a_kubelet_that_dials_by_a_bare_path_is_served(registrar, tmp_path):
    """Older kubelets do, and their :authority is then the path in percent signs."""
    authority = str(tmp_path / "reg.sock").replace("/", "%2F")
    options = [("grpc.default_authority", authority)]
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/reg.sock", options=options) as channel:
        info = await api_pb2_grpc.RegistrationStub(channel).GetInfo(api_pb2.InfoRequest())
    assert info.name == "d.example"


async def test_how_far_it_has_come(registrar):
    servicer, stub, _ = registrar
    assert servicer.last_seen == "the kubelet has not asked yet"
    await stub.GetInfo(api_pb2.InfoRequest())
    await stub.NotifyRegistrationStatus(api_pb2.RegistrationStatus(plugin_registered=True))
    assert servicer.last_seen == ""
