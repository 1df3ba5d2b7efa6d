"""A small DRA driver as a stranger would write it: widgets of example.com, one process a node.

driver.py NODE KUBELET_DIR CDI_DIR; the cluster is KUBECONFIG's. It knows nothing of claimd but the
stubs of the kubelet's gRPC, which any driver generates.
"""

import base64
import json
import os
import ssl
import sys
import urllib.request
from concurrent import futures
from pathlib import Path

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as dra
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as dra_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2_grpc as registration_grpc

DRIVER = "widgets.example.com"
RESOURCES = "/apis/resource.k8s.io/v1"


class Api:
    """The cluster that KUBECONFIG names. Its file is JSON, which is all that is read here."""

    def __init__(self):
        config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.server, self.token = cluster["server"], user["token"]
        self.context = ssl.create_default_context(cadata=authority)

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=body and json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self.context, timeout=10) as response:
            return json.load(response)


class Registration(registration_grpc.RegistrationServicer):
    def __init__(self, endpoint, registered):
        self.endpoint, self.registered = endpoint, registered

    def GetInfo(self, request, context):
        return registration.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(self.endpoint),
            supported_versions=["v1.DRAPlugin"],
        )

    def NotifyRegistrationStatus(self, request, context):
        if request.plugin_registered:
            self.registered()
        return registration.RegistrationStatusResponse()


class Driver(dra_grpc.DRAPluginServicer):
    def __init__(self, api, cdi):
        self.api, self.cdi = api, cdi

    def NodePrepareResources(self, request, context):
        answer = dra.NodePrepareResourcesResponse()
        for asked in request.claims:
            path = f"{RESOURCES}/namespaces/{asked.namespace}/resourceclaims/{asked.name}"
            claim = self.api.ask("GET", path)
            for result in claim["status"]["allocation"]["devices"]["results"]:
                device = dra.Device(
                    request_names=[result["request"]],
                    pool_name=result["pool"],
                    device_name=result["device"],
                    cdi_device_ids=[self.write_spec(asked.uid, result["device"])],
                )
                answer.claims[asked.uid].devices.append(device)
        return answer

    def NodeUnprepareResources(self, request, context):
        answer = dra.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            for spec in self.cdi.glob(f"widgets-{asked.uid}-*.json"):
                spec.unlink()
            answer.claims[asked.uid].CopyFrom(dra.NodeUnprepareResourceResponse())
        return answer

    def write_spec(self, uid, device):
        edits = {"env": [f"WIDGET={device}"]}
        spec = {"cdiVersion": "0.6.0", "kind": "example.com/widget"}
        spec["devices"] = [{"name": f"{uid}-{device}", "containerEdits": edits}]
        (self.cdi / f"widgets-{uid}-{device}.json").write_text(json.dumps(spec))
        return f"example.com/widget={uid}-{device}"


def serve(add, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    add(server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def main():
    node, kubelet, cdi = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    api = Api()

    def publish():
        devices = [{"name": f"widget-{number}"} for number in range(2)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"{node}-widgets-"},
            "spec": spec,
        }
        api.ask("POST", f"{RESOURCES}/resourceslices", body)

    endpoint = kubelet / "plugins" / DRIVER / "dra.sock"
    driver = Driver(api, cdi)
    # A server ends when nobody holds it any more.
    prepares = serve(
        lambda server: dra_grpc.add_DRAPluginServicer_to_server(driver, server), endpoint
    )
    registrar = Registration(endpoint, publish)
    registers = serve(
        lambda server: registration_grpc.add_RegistrationServicer_to_server(registrar, server),
        kubelet / "plugins_registry" / f"{DRIVER}-reg.sock",
    )
    for server in (prepares, registers):
        server.wait_for_termination()


if __name__ == "__main__":
    main()
