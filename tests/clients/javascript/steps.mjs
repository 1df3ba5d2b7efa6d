// @kubernetes/client-node.

import assert from "node:assert";
import * as k8s from "@kubernetes/client-node";

const NAMES = ["a", "b", "c", "d", "e"];
const namespace = "default";

const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CoreV1Api);

const map = (name) => ({ metadata: { name, labels: { for: "steps" } } });
const done = (step) => console.log(step);
const read = (name) => api.readNamespacedConfigMap({ name, namespace });

async function until(holds) {
  const end = Date.now() + 20_000;
  while (!(await holds())) {
    assert(Date.now() < end, "it does not come true");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

for (const name of NAMES) {
  await api.createNamespacedConfigMap({ namespace, body: map(name) });
}
done("create");

const names = [];
let proceed;
do {
  const page = await api.listNamespacedConfigMap({ namespace, limit: 2, _continue: proceed });
  names.push(...page.items.map((item) => item.metadata.name));
  proceed = page.metadata._continue;
} while (proceed);
assert.deepEqual(names, NAMES);
done("list");

const seen = [];
for (let times = 0; times < 3; times++) {
  await new Promise((resolve, reject) => {
    new k8s.Watch(config)
      .watch(
        `/api/v1/namespaces/${namespace}/configmaps`,
        { timeoutSeconds: 1 },
        (_, found) => seen.push(found.metadata.name),
        (error) => (error && error !== k8s.Watch.SERVER_SIDE_CLOSE ? reject(error) : resolve()),
      )
      .catch(reject);
  });
  await read("a");
}
assert.deepEqual(seen, [...NAMES, ...NAMES, ...NAMES]);
done("watch");

const numbers = [];
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
  api.listNamespacedConfigMap({ namespace }),
);
informer.on("update", (found) => numbers.push(found.data?.number));
await informer.start();
assert.deepEqual(informer.list().map((found) => found.metadata.name).sort(), NAMES);
for (const number of ["1", "2"]) {
  const changed = await read("e");
  changed.data = { number };
  await api.replaceNamespacedConfigMap({ name: "e", namespace, body: changed });
  await until(() => numbers.includes(number));
}
await informer.stop();
done("informer");

const patches = [
  [k8s.PatchStrategy.JsonPatch, [{ op: "add", path: "/data", value: { json: "1" } }]],
  [k8s.PatchStrategy.MergePatch, { data: { merge: "1" } }],
  [k8s.PatchStrategy.StrategicMergePatch, { data: { strategic: "1" } }],
];
for (const [strategy, body] of patches) {
  await api.patchNamespacedConfigMap(
    { name: "a", namespace, body },
    k8s.setHeaderOptions("Content-Type", strategy),
  );
}
const applied = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" }, data: { apply: "1" } };
await api.patchNamespacedConfigMap(
  { name: "a", namespace, body: applied, fieldManager: "me" },
  k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.ServerSideApply),
);
assert.deepEqual(Object.keys((await read("a")).data).sort(), ["apply", "json", "merge", "strategic"]);
done("patch");

async function makeDependent(name, owner) {
  const { uid } = (await read(owner)).metadata;
  const reference = { apiVersion: "v1", kind: "ConfigMap", name: owner, uid, blockOwnerDeletion: true };
  const body = { metadata: { name, labels: { for: "steps" }, ownerReferences: [reference] } };
  await api.createNamespacedConfigMap({ namespace, body });
}

const isGone = (name) => read(name).then(() => false, (error) => error.code === 404);
await makeDependent("kept", "a");
await api.deleteNamespacedConfigMap({ name: "a", namespace, propagationPolicy: "Orphan" });
await until(async () => !((await read("kept")).metadata.ownerReferences ?? []).length);
await makeDependent("gone", "b");
await api.deleteNamespacedConfigMap({ name: "b", namespace, propagationPolicy: "Foreground" });
await until(async () => (await isGone("gone")) && (await isGone("b")));
done("delete");
process.exit(0);
