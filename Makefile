# The project's commands. `make test` needs only Python 3.11 (with venv), make and the network.
PYTHON ?= python3
BUILDER ?= podman
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-requirements

.PHONY: dev demo clients judges docs ids lint test unit slow mutants containers machine browser cluster cluster-matrix recordings faults faults-short fuzz audit sbom soak soak-short oracle bench ratios scale proto lock bases image release clean

dev: $(STAMP)  ## everything a developer needs, in .venv

$(STAMP): requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(PYTEST) --collect-only > /dev/null || true
	touch $@

# The demo needs less than development does. It has its own environment if there is none for developers.
RUN := $(if $(wildcard $(STAMP)),$(VENV),.venv-run)

demo: $(if $(wildcard $(STAMP)),,.venv-run/.made-from-requirements)  ## play a story on a simulated cluster, in under a minute (ARGS=--serve keeps the cluster running)
	@PYTHONPATH=plugin:devices $(RUN)/bin/python -m claimd demo $(ARGS)

.venv-run/.made-from-requirements: requirements.txt
	$(PYTHON) -m venv .venv-run
	.venv-run/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	touch $@

lint: dev  ## style, types, layers, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose

test: lint unit  ## style, types, layers and the unit tests

# Half of the suite's time would go into compiling the same modules in each process, and into small files on a disk. So
# bytecode is kept, and temporary files are in memory if there is room for them. `make dev` loads all tests once, so that
# the processes of `make unit` do not all compile them. Many tests wait for processes and clocks, so two tests share a
# processor.
IN_MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 2000000 ] && echo TMPDIR=/dev/shm)
WORKERS ?= $(shell echo $$(($$(nproc) * 2)))
PYTEST := env PYTHONDONTWRITEBYTECODE= $(IN_MEMORY) $(BIN)/pytest -q

unit: dev  ## only the unit tests (PYTHON=/usr/bin/python3 VENV=.venv-debian: with another Python)
	$(PYTEST) -n $(WORKERS) -m "not slow"

slow: dev  ## the unit tests that do much work, and all examples of those that take a sample
	EXAMPLES=all $(PYTEST) -n $(WORKERS) -m "slow or sampled" --timeout=900

clients: dev  ## programs with the usual client libraries, and the demos of a driver, on `claimd sim` (with Go, npm, Maven, helm, kubectl if they are installed)
	$(BIN)/pytest -q tests/clients

judges: dev  ## the same pods and claims for our scheduler and for Kubernetes' own, which the rig builds (KUBE_SCHEDULER=another, KUBE_PROFILE=1.38)
	$(BIN)/pytest -q tests/judges

mutants: dev  ## put small mistakes into a copy, one at a time, and see whether the tests notice (ARGS="--seed 2 --count 40 plugin/claimd/node/prepare")
	$(BIN)/python -m tests.mutants $(ARGS)

containers: dev  ## run containers that get a GPU with runc and crun, on nodes of every kind (needs root, musl-tools, Go, Debian's packages)
	$(BIN)/pytest -q tests/containers

machine: dev  ## virtual machines whose kernels bind, hot-plug and fail devices (installs QEMU and fetches kernels by apt; needs no KVM)
	$(BIN)/pytest -q tests/machine

browser: dev  ## the page of `claimd view` in Debian's chromium, at 3 nodes and at 1,000 (PICTURES=docs replaces the pictures of the docs)
	$(BIN)/pytest -q tests/browser

cluster: dev  ## the suite on a real one-node cluster (needs root; the first build takes about 12 minutes)
	$(BIN)/python -m tests.cluster

cluster-matrix: dev  ## the same with all API versions, kubelets and container runtimes (an hour and a half)
	$(BIN)/python -m tests.cluster --matrix

recordings: dev  ## record what a real scheduler says about pods that wait, in tests/cases (needs root; half an hour)
	$(BIN)/python -m tests.cluster.pending
	$(BIN)/python -m tests.cluster.pod_groups

faults: dev  ## every campaign in full: kills at every step, loss of power, failing calls, a model, a failing API server (needs root, strace, faketime, cc)
	$(BIN)/python -m tests.faults deaths
	$(BIN)/python -m tests.faults power
	$(BIN)/python -m tests.faults.errors
	$(BIN)/python -m tests.faults.long
	$(BIN)/python -m tests.faults.strangers
	$(BIN)/python -m tests.faults.callers
	$(BIN)/python -m tests.faults.database
	$(BIN)/pytest -q tests/faults

faults-short: dev  ## a sample of each campaign, in a few minutes
	$(BIN)/pytest -q -n 2 --dist loadfile tests/faults

fuzz: dev  ## random bytes for every parser, SECONDS=60 each (TARGETS="capture cel", SEED=1); with Python 3.12 or later guided by coverage
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(TARGETS)

audit: dev  ## check the shipped packages: versions, hashes, licences; known vulnerabilities if pip-audit is installed and reaches its data
	$(BIN)/python deploy/supply.py audit requirements.txt

sbom: dev  ## print a bill of materials of the shipped packages, in CycloneDX
	@$(BIN)/python deploy/supply.py sbom requirements.txt

soak: dev  ## 25 minutes on a real cluster with random kills, an absent API server and updates (needs root)
	$(BIN)/python -m tests.soak

soak-short: dev  ## 70 seconds of the same, with each kind of fault once
	$(BIN)/python -m tests.soak --minutes 1.2 soak

docs: dev  ## rewrite the generated tables of docs/, and the output of the commands on its pages
	$(BIN)/python -m tests.docs

ids: dev  ## the table of PCI ids from Debian's lists and those of ARGS (--nvidia README.md --intel pciids.h); ARGS="xids --catalog FILE --header nverror.h": the table of Xid errors
	$(BIN)/python -m tests.ids $(ARGS)

proto: dev  ## regenerate plugin/claimd/kubernetes/kubelet_api from proto/
	$(BIN)/python proto/generate.py

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header

lock:  ## resolve the dependencies again (needs uv)
	$(LOCK) pyproject.toml --group dev -o requirements-dev.txt
	$(LOCK) pyproject.toml -c requirements-dev.txt -o requirements.txt

bases:  ## the digests that the tags of the image's bases have now, into deploy/Containerfile (needs skopeo)
	$(PYTHON) deploy/bases.py deploy/Containerfile

# With these options podman makes the same image from the same commit; docker uses the variable SOURCE_DATE_EPOCH.
COMMITTED := $(shell git log -1 --format=%ct 2> /dev/null)
TIMESTAMP := $(if $(COMMITTED),$(if $(filter podman buildah,$(BUILDER)),--timestamp=$(COMMITTED)))

image:  ## the container image (podman, or BUILDER=docker; BUILDFLAGS= for more arguments)
	$(BUILDER) build $(TIMESTAMP) $(BUILDFLAGS) -t claimd -f deploy/Containerfile .

release: dev  ## all files of a release, from TAG=v0.1.0, into dist/ (needs podman, helm, kubectl); PLATFORMS="linux/amd64 linux/arm64": images for both, by qemu-user
	@$(BIN)/python deploy/release.py --builder "$(BUILDER)" --build-flags "$(BUILDFLAGS)" --platforms "$(PLATFORMS)" $(if $(TAG),--tag $(TAG)) $(ARGS)

oracle: dev  ## compare the allocator, its CEL and server-side apply with Kubernetes' own, with random input (needs Go; ten minutes)
	$(BIN)/python -m tests.oracle.campaign allocator --count 25000
	$(BIN)/python -m tests.oracle.campaign oldest-allocator --count 5000
	$(BIN)/python -m tests.oracle.campaign allocator-1.38 --count 5000
	$(BIN)/python -m tests.oracle.campaign hives --count 1000
	$(BIN)/python -m tests.oracle.campaign pools --count 20000
	$(BIN)/python -m tests.oracle.campaign cel --count 30000
	$(BIN)/python -m tests.oracle.campaign apply --count 10000

bench: dev  ## measure the simulated API server, the allocator next to Kubernetes' own, and claimd with a real API server (PEER=command, or GO_DRIVER=clone, which writes docs/cost.md), then at rest; needs Go, root
	$(BIN)/python -m tests.bench.sim
	$(BIN)/python -m tests.bench.load
	$(BIN)/python -m tests.bench.allocator
	$(BIN)/python -m tests.bench.explain
	$(BIN)/python -m tests.bench $(if $(GO_DRIVER),--go $(GO_DRIVER) --publish)
	$(BIN)/python -m tests.bench.resting
	$(BIN)/python -m tests.bench.handover

scale: dev  ## 100, 300, then 1,000 nodes against one real API server: writes docs/scale.json and its tables (root, Go; half an hour; ARGS="--fleets claimd,peer")
	$(BIN)/python -m tests.scale --save $(ARGS)

ratios: dev  ## figures that depend little on the machine's speed, next to those of the last runs (CLAIMD_RATIOS=file keeps them); ARGS=--strict
	$(BIN)/python -m tests.bench.ratios $(ARGS)

clean:  ## remove everything that was built
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .mutants
