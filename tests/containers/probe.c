/* What a program in a container finds of a GPU: a line for each question, `name: answer`.
 *
 *     probe [--ldconfig] NAME...
 *
 * A NAME that begins with / is opened as a device node, any other is loaded as a library. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void load(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (library == NULL) {
        printf("%s: %s\n", name, dlerror());
        return;
    }
    int (*initialise)(unsigned) = dlsym(library, "cuInit");
    const char *(*version)(void) = dlsym(library, "stub_version");
    printf("%s: loaded", name);
    if (initialise != NULL)
        printf(", cuInit %d", initialise(0));
    if (version != NULL)
        printf(", %s", version());
    printf("\n");
}

/* A fake GPU has no driver behind its node, which is another answer than that it must not be
 * opened or is not there. */
static void open_node(const char *path) {
    int node = open(path, O_RDWR);
    int reason = errno;
    if (node >= 0 || reason == ENXIO || reason == ENODEV || reason == EIO)
        printf("%s: opened\n", path);
    else
        printf("%s: %s\n", path, strerror(reason));
}

static void list_cache(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/sbin/ldconfig", "ldconfig", "-p", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    printf("ldconfig: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(int count, char **arguments) {
    for (int index = 1; index < count; index++) {
        if (strcmp(arguments[index], "--ldconfig") == 0)
            list_cache();
        else if (arguments[index][0] == '/')
            open_node(arguments[index]);
        else
            load(arguments[index]);
    }

    const char *folder = getenv("TRITON_LIBCUDA_PATH");
    char path[4096];
    snprintf(path, sizeof path, "%s/libcuda.so", folder ? folder : "");
    printf("TRITON_LIBCUDA_PATH: %s\n", access(path, R_OK) == 0 ? "there" : "nothing");
    printf("uid: %d\n", (int)getuid());
    return 0;
}
