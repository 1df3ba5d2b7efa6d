"""A libnvidia-ml.so.1 that answers, or does not: real ELF files, built with gcc."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char text[32]; };
struct attributes { unsigned processors, engines[5], gpu_slices, compute_slices;
                    unsigned long long mebibytes; };
struct part { int gi, ci; const char *name; unsigned processors, mebibytes; };

static struct part parts[] = { PARTS {-1, 0, "", 0, 0} };
static struct { unsigned domain, bus; } places[] = { PLACES };
enum { PLACED = sizeof places / sizeof places[0] };
static int gpus[PLACED + 1]; /* their own numbers; the last one is lost */

static void misbehave(const char *where) {
    puts("the library prints where nobody asked it to");
    fflush(stdout);
    fputs("and complains there, too", stderr);
    if (strcmp(HANGS_IN, where) == 0)
        for (;;) pause();
    if (strcmp(CRASHES_IN, where) == 0)
        *(volatile int *)8 = 1;
}

__attribute__((destructor)) static void clean_up(void) { misbehave("exit"); }
int nvmlInit_v2(void) {
    misbehave("init");
    for (int number = 0; number <= PLACED; number++)
        gpus[number] = number;
    return INIT;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = PLACED + 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    *gpu = &gpus[index];
    return index == PLACED ? 15 : 0; /* lost */
}
int nvmlDeviceGetPciInfo_v3(int *gpu, struct place *place) {
    memset(place, 0, sizeof *place);
    place->domain = places[*gpu].domain;
    place->bus = places[*gpu].bus;
    return 0;
}
int nvmlDeviceGetMigMode(int *gpu, unsigned *mode, unsigned *pending) {
    *mode = *pending = MIG_ON;
    return *gpu == 1 ? (*mode = *pending = 0, NO_MIG) : 0;
}
#ifndef OLD
int nvmlDeviceGetMaxMigDeviceCount(int *gpu, unsigned *count) { *count = 7; return 0; }
#endif
int nvmlDeviceGetMigDeviceHandleByIndex(int *gpu, unsigned index, void **part) {
    misbehave("parts");
    for (unsigned there = 0; parts[there].gi >= 0; there++)
        if (2 * there + 1 == index) { /* there are gaps */
            *part = &parts[there];
            return 0;
        }
    return 6;
}
#if !defined(WITHOUT_BOARD) && !defined(HEALTH)
struct memory { unsigned long long total, free, used; };
struct load { unsigned gpu, memory; };
struct fabric { unsigned char cluster[16]; unsigned status, clique; unsigned char state; };
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return 0; }
int nvmlDeviceGetMemoryInfo(int *gpu, struct memory *memory) {
    memory->total = 85520809984ull;
    memory->used = 1073741824ull * (*gpu + 1);
    memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetEccMode(int *gpu, unsigned *now, unsigned *next) {
    *now = *next = *gpu == 0;
    return 0;
}
int nvmlDeviceGetPowerManagementLimit(int *gpu, unsigned *limit) { *limit = 700000; return 0; }
int nvmlDeviceGetRemappedRows(int *gpu, unsigned *one, unsigned *two, unsigned *pending, unsigned *failed) {
    *one = 2, *two = 1, *pending = *failed = 0;
    return *gpu == 0 ? 0 : 3; /* before Ampere */
}
int nvmlDeviceGetRetiredPages(int *gpu, unsigned cause, unsigned *count, unsigned long long *pages) {
    *count = cause + 1;
    return 7; /* no room for the addresses */
}
int nvmlDeviceGetGpuFabricInfo(int *gpu, struct fabric *fabric) {
    memset(fabric, 0, sizeof *fabric);
    for (int byte = 0; byte < 16; byte++)
        fabric->cluster[byte] = CLUSTER;
    fabric->clique = 4;
    fabric->status = FABRIC_STATUS;
    fabric->state = *gpu < IN_FABRIC ? 3 : 0;
    return 0;
}
int nvmlDeviceGetUtilizationRates(int *gpu, struct load *load) {
    misbehave("load");
    load->gpu = 87, load->memory = 40;
    return *gpu == 0 ? 0 : 3; /* MIG is on */
}
int nvmlDeviceGetPowerUsage(int *gpu, unsigned *power) { *power = 412500; return 0; }
int nvmlDeviceGetTemperature(int *gpu, unsigned sensor, unsigned *degrees) {
    *degrees = 61;
    return sensor == 0 ? 0 : 2;
}
#endif
int nvmlDeviceGetGpuInstanceId(struct part *part, unsigned *id) { *id = part->gi; return 0; }
int nvmlDeviceGetComputeInstanceId(struct part *part, unsigned *id) { *id = part->ci; return 0; }
#ifndef WITHOUT_UUID
int nvmlDeviceGetUUID(struct part *part, char *text, unsigned size) {
    snprintf(text, size, "MIG-%08d-0000-0000-0000-%012d", part->gi, part->ci);
    return 0;
}
#endif
#ifndef WITHOUT_NAME
int nvmlDeviceGetName(struct part *part, char *text, unsigned size) {
    snprintf(text, size, "NVIDIA A100-SXM4-80GB MIG %s", part->name);
    return 0;
}
#endif
#ifndef WITHOUT_ATTRIBUTES
int nvmlDeviceGetAttributes_v2(struct part *part, struct attributes *attributes) {
    memset(attributes, 0, sizeof *attributes);
    attributes->processors = part->processors;
    attributes->mebibytes = part->mebibytes;
    for (unsigned engine = 0; engine < 5; engine++)
        attributes->engines[engine] = (unsigned[]){ENGINES}[engine];
    return 0;
}
#endif
#ifdef HEALTH
/* Facts about the first GPU; instances count their own errors, the first of them two. */
struct value { unsigned field, scope; long long at, latency; int type, code;
               unsigned long long value; };
struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
struct health { unsigned pending, failed, errors, part_errors, recovery, state, status; };
static struct health health = { HEALTH };
static int is_gpu(void *device) { return device >= (void *)gpus && device < (void *)(gpus + PLACED + 1); }
static int is_first(void *device) { return device == (void *)&gpus[0]; }

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    if (!is_first(device)) return 3;
    *corrected = *uncorrected = 0;
    *pending = health.pending;
    *failed = health.failed;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *count) {
    if (kind != 1 || since != 0) return 2;
    *count = is_first(device) ? health.errors : 0;
    if (!is_gpu(device)) *count = device == (void *)&parts[0] ? health.part_errors : 0;
    return 0;
}
int nvmlDeviceGetFieldValues(void *device, int count, struct value *value) {
    if (!is_gpu(device) || count != 1) return 3;
    value->code = value->field == 230 ? 0 : 3;
    value->value = is_first(device) ? health.recovery : 0;
    return 0;
}
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *fabric) {
    if (!is_first(device)) return 3;
    fabric->state = health.state;
    fabric->status = health.status;
    return 0;
}
#endif
"""
ENGINES = "1, 1, 0, 1, 1"  # of an instance with the media extensions
PLACES = "{0, 0x11}, {0, 0x13}"  # the PCI domains and buses of the GPUs
PART = '{7, 0, "1g.10gb+me", 14, 9728},'


def build(place: Path, *flags: str, parts: str = PART, mig_on: int = 1, **words: str) -> None:
    """Writes the library to `place`.

    `words` are `hangs_in` and `crashes_in`: in which function (`init`, `parts`, `load`, or `exit`
    for the library's own clean-up), `no_mig`: the error of a GPU without MIG, the numbers `cluster`
    and `fabric_status`, `places`: where the GPUs are, `in_fabric`: how many of them are in the
    fabric, and `engines`: the five numbers of each instance. `flags` are macros: OLD and
    WITHOUT_UUID, WITHOUT_NAME, WITHOUT_ATTRIBUTES and WITHOUT_BOARD, which leave functions away, and
    HEALTH=… with the numbers of `struct health`.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    options = [f"-D{flag}" for flag in flags]
    options += [f"-DPARTS={parts}", f"-DMIG_ON={mig_on}", f"-DINIT={words.get('init', '0')}"]
    options.append(f"-DCLUSTER={words.get('cluster', '0xab')}")
    options.append(f"-DFABRIC_STATUS={words.get('fabric_status', '0')}")
    options.append(f"-DPLACES={words.get('places', PLACES)}")
    options.append(f"-DIN_FABRIC={words.get('in_fabric', '1')}")
    options.append(f"-DENGINES={words.get('engines', ENGINES)}")
    options.append(f"-DNO_MIG={words.get('no_mig', '3')}")  # 3: not supported
    for name in ("hangs_in", "crashes_in"):
        options.append(f'-D{name.upper()}="{words.get(name, "")}"')
    shutil.copy(_built(tuple(options)), place)


def place_in(root: Path) -> Path:
    """Returns where the driver of a tree has its library, by the version of its kernel module."""
    version = (root / "sys/module/nvidia/version").read_text().strip()
    return root / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}"


@functools.cache
def _built(options: tuple[str, ...]) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    library = Path(tempfile.mkdtemp(prefix="claimd-test-nvml-"), "libnvidia-ml.so.1")
    command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", *options, "-o", str(library)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return library
