/* What a program in a container finds of a GPU that it was given: a line for each question.
 *
 *     claimd-container-check                         all that is there, as a table; 1 if not all is well
 *     claimd-container-check [--ldconfig] NAME...    these alone; always 0
 *
 * A NAME that begins with / is opened as a device node, any other is loaded as a library. It is
 * linked dynamically, since only such a program can load libraries as programs that compute do. */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int failures;

/* The name of a question, in a column of its own. */
static void ask(const char *name) {
    printf("%s:%*s", name, (int)(strlen(name) < 34 ? 35 - strlen(name) : 1), "");
}

/* ---------------------------------------------------------------- libraries */

/* What they answer without a GPU: whether the driver can be initialised, and its version. */
static void question_library(void *library) {
    int (*initialise)(unsigned) = dlsym(library, "cuInit");
    if (initialise != NULL)
        printf(", cuInit %d", initialise(0));

    int (*count)(int *) = dlsym(library, "cuDeviceGetCount");
    int devices;
    if (initialise != NULL && count != NULL && count(&devices) == 0)
        printf(", devices: %d", devices);

    int (*start)(void) = dlsym(library, "nvmlInit_v2");
    int (*version)(char *, unsigned) = dlsym(library, "nvmlSystemGetDriverVersion");
    char text[80] = "";
    if (start != NULL && version != NULL && start() == 0 && version(text, sizeof text) == 0)
        printf(", driver %s", text);
}

/* One that the node has to bring is a failure if it is missing, the image's own is not. */
static void load(const char *name, int is_needed) {
    ask(name);
    void *library = dlopen(name, RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", is_needed ? dlerror() : "not in this image");
        failures += is_needed;
        return;
    }
    printf("loaded");
    question_library(library);
    printf("\n");
}

/* ---------------------------------------------------------------- nodes */

struct drm_version {
    int major, minor, patch;
    size_t name_size;
    char *name;
    size_t date_size;
    char *date;
    size_t description_size;
    char *description;
};

struct kfd_version {
    uint32_t major, minor;
};

/* Which driver is behind the node, of those that tell. */
static void question_node(const char *path, int node) {
    char name[40] = "";
    struct drm_version drm = {.name = name, .name_size = sizeof name - 1};
    struct kfd_version kfd;
    if (strncmp(path, "/dev/dri/", 9) == 0 && ioctl(node, _IOWR('d', 0, drm), &drm) == 0)
        printf(", %s %d.%d", name, drm.major, drm.minor);
    if (strcmp(path, "/dev/kfd") == 0 && ioctl(node, _IOR('K', 1, kfd), &kfd) == 0)
        printf(", version %u.%u", kfd.major, kfd.minor);
}

/* That no driver is behind it is another answer than that it must not be opened: so it is with
 * fake GPUs, and with real ones whose driver is gone. */
static void open_node(const char *path) {
    ask(path);
    int node = open(path, O_RDWR | O_CLOEXEC);
    if (node >= 0) {
        printf("opened");
        question_node(path, node);
        printf("\n");
        close(node);
        return;
    }
    failures++;
    if (errno == ENXIO || errno == ENODEV || errno == EIO)
        printf("no driver is behind it: %s\n", strerror(errno));
    else
        printf("%s\n", strerror(errno));
}

static int is_there(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISCHR(status.st_mode);
}

/* The character devices of a folder whose names begin so; how many there were. */
static int open_nodes(const char *folder, const char *prefix) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    int nodes = 0;
    for (int index = 0; index < count; index++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folder, entries[index]->d_name);
        if (strncmp(entries[index]->d_name, prefix, strlen(prefix)) == 0 && is_there(path)) {
            open_node(path);
            nodes++;
        }
        free(entries[index]);
    }
    if (count >= 0)
        free(entries);
    return nodes;
}

/* ---------------------------------------------------------------- what else */

static void list_cache(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/sbin/ldconfig", "ldconfig", "-p", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    ask("ldconfig");
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void check_triton(void) {
    const char *folder = getenv("TRITON_LIBCUDA_PATH");
    char path[4096];
    snprintf(path, sizeof path, "%s/libcuda.so", folder ? folder : "");
    ask("TRITON_LIBCUDA_PATH");
    printf("%s\n", access(path, R_OK) == 0 ? "there" : "nothing");
}

static void print_variables(void) {
    int given = 0;
    for (char **variable = environ; *variable != NULL; variable++) {
        int is_ours = strncmp(*variable, "CLAIMD_", 7) == 0;
        if (!is_ours && strncmp(*variable, "NVIDIA_", 7) != 0)
            continue;
        given += strncmp(*variable, "CLAIMD_GPU_", 11) == 0;
        char *value = strchr(*variable, '=');
        *value = 0;
        ask(*variable);
        printf("%s\n", value + 1);
        *value = '=';
    }
    if (given == 0) {
        failures++;
        ask("CLAIMD_GPU_...");
        printf("missing: this container was given no GPU, does it name the claim?\n");
    }
}

static int check_all(void) {
    print_variables();
    printf("\n");

    open_nodes("/dev", "nvidia");
    open_nodes("/dev/nvidia-caps", "nvidia-cap");
    int has_kfd = open_nodes("/dev", "kfd");
    int screens = open_nodes("/dev/dri", "card") + open_nodes("/dev/dri", "renderD");
    open_nodes("/dev/vfio", "");
    printf("\n");

    if (is_there("/dev/nvidiactl")) {
        load("libcuda.so.1", 1);
        load("libcuda.so", 1);
        load("libnvidia-ml.so.1", 1);
        load("libnvidia-ptxjitcompiler.so.1", 1);
        check_triton();
    } else if (has_kfd) {
        load("libhsa-runtime64.so.1", 0);
        load("libamdhip64.so", 0);
    } else if (screens) {
        load("libze_loader.so.1", 0);
        load("libze_intel_gpu.so.1", 0);
    }
    ask("user");
    printf("%d\n\n", (int)getuid());
    printf(failures ? "not well: %d of these\n" : "all is well\n", failures);
    return failures > 0;
}

int main(int count, char **arguments) {
    if (count == 1)
        return check_all();
    for (int index = 1; index < count; index++) {
        if (strcmp(arguments[index], "--ldconfig") == 0)
            list_cache();
        else if (arguments[index][0] == '/')
            open_node(arguments[index]);
        else
            load(arguments[index], 1);
    }
    check_triton();
    ask("uid");
    printf("%d\n", (int)getuid());
    return 0;
}
