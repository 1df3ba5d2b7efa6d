/* Lets chosen calls of a process fail: loaded by LD_PRELOAD, steered by a page of shared memory.
 *
 * Each wrapper finds out which tree a call is about, by its path or by what its descriptor was
 * opened for, and counts it. If the page orders an error for such a call, the wrapper returns the
 * error instead of calling the C library. `close`, and an interrupted `connect`, do their work
 * before they report the error, as Linux does.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* The same order as CALLS and TREES in shim.py. */
enum { OPENAT, READ, PREAD, FSTAT, STAT, GETDENTS, CLOSE, WRITE, FSYNC, RENAME, UNLINK, MKDIR,
       FLOCK, READLINK, SOCKET, BIND, LISTEN, CONNECT, ACCEPT, CLONE, CALLS = 32 };
enum { NOTHING, HARDWARE, CDI, CHECKPOINTS, KUBELET, API, PROCESS, TREES = 8 };
enum { PREFIXES = 16, PREFIX = 240, DESCRIPTORS = 1 << 16 };

struct prefix { int64_t tree; char path[PREFIX]; };

struct page {
    int64_t is_armed, call, tree, error;
    int64_t skip;   /* such calls that succeed before the first error */
    int64_t times;  /* calls that fail */
    int64_t failed; /* calls that have failed */
    int64_t spare;
    int64_t counts[CALLS][TREES];
    char path[512]; /* of the last call that failed, if it has one */
    struct prefix prefixes[PREFIXES];
};

static struct page *page;
static unsigned char tree_of[DESCRIPTORS];
static unsigned char is_socket[DESCRIPTORS];

/* Maps the page. The process must call this before it does anything that is to be counted. */
int shim_use(const char *path) {
    int descriptor = (int) open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    void *memory = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED)
        return -1;
    page = memory;
    return 0;
}

static int fails(int call, int tree, const char *path) {
    if (page == NULL || tree == NOTHING)
        return 0;
    __atomic_fetch_add(&page->counts[call][tree], 1, __ATOMIC_SEQ_CST);
    if (!page->is_armed || page->call != call || page->tree != tree)
        return 0;
    if (__atomic_fetch_sub(&page->skip, 1, __ATOMIC_SEQ_CST) > 0)
        return 0;
    if (__atomic_fetch_sub(&page->times, 1, __ATOMIC_SEQ_CST) <= 0)
        return 0;
    __atomic_fetch_add(&page->failed, 1, __ATOMIC_SEQ_CST);
    if (path != NULL) {
        strncpy(page->path, path, sizeof page->path - 1);
    }
    errno = (int) page->error;
    return 1;
}

static int tree_of_fd(int fd) {
    return fd >= 0 && fd < DESCRIPTORS ? tree_of[fd] : NOTHING;
}

/* Returns fd. A descriptor of another kind may have had its number before. */
static int note(int fd, int tree) {
    if (fd >= 0 && fd < DESCRIPTORS) {
        tree_of[fd] = (unsigned char) tree;
        is_socket[fd] = 0;
    }
    return fd;
}

static int note_socket(int fd, int tree) {
    note(fd, tree);
    if (fd >= 0 && fd < DESCRIPTORS)
        is_socket[fd] = 1;
    return fd;
}

/* The first prefix that fits decides. The name of a socket belongs to the kubelet's tree. */
static int tree_of_path(int folder, const char *path) {
    if (page == NULL || path == NULL)
        return NOTHING;
    size_t length = strlen(path);
    int tree = NOTHING;
    if (path[0] != '/') {
        tree = tree_of_fd(folder);
    } else {
        for (int i = 0; i < PREFIXES && page->prefixes[i].tree != NOTHING; i++) {
            const char *prefix = page->prefixes[i].path;
            size_t count = strlen(prefix);
            if (strncmp(path, prefix, count) == 0 && (path[count] == '/' || path[count] == 0)) {
                tree = (int) page->prefixes[i].tree;
                break;
            }
        }
    }
    if (tree == CHECKPOINTS && length > 5 && strcmp(path + length - 5, ".sock") == 0)
        tree = KUBELET;
    return tree;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (real == NULL) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

/* ------------------------------------------------------------------ open */

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { \
            va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); \
        } \
        int tree = tree_of_path(-1, path); \
        if (fails(OPENAT, tree, path)) return -1; \
        return note(real(path, flags, mode), tree); \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { \
            va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); \
        } \
        int tree = tree_of_path(folder, path); \
        if (fails(OPENAT, tree, path)) return -1; \
        return note(real(folder, path, flags, mode), tree); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

/* With _FORTIFY_SOURCE a compiler may call these instead. */
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }

DIR *opendir(const char *path) {
    REAL(opendir);
    int tree = tree_of_path(-1, path);
    if (fails(OPENAT, tree, path)) return NULL;
    DIR *folder = real(path);
    if (folder != NULL) note(dirfd(folder), tree);
    return folder;
}

int closedir(DIR *folder) {
    REAL(closedir);
    int tree = tree_of_fd(dirfd(folder));
    note(dirfd(folder), NOTHING);
    int result = real(folder);
    return fails(CLOSE, tree, NULL) ? -1 : result;
}

#define READDIR(name, type) \
    struct type *name(DIR *folder) { \
        REAL(name); \
        if (fails(GETDENTS, tree_of_fd(dirfd(folder)), NULL)) return NULL; \
        return real(folder); \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/* Linux reports no error of a socket here. */
int close(int fd) {
    REAL(close);
    int tree = fd >= 0 && fd < DESCRIPTORS && is_socket[fd] ? NOTHING : tree_of_fd(fd);
    note(fd, NOTHING);
    int result = real(fd);
    return fails(CLOSE, tree, NULL) ? -1 : result;
}

/* ------------------------------------------------------------------ read and write */

#define ON_FD(call, result, name, parameters, arguments) \
    result name parameters { \
        REAL(name); \
        if (fails(call, tree_of_fd(fd), NULL)) return -1; \
        return real arguments; \
    }
ON_FD(READ, ssize_t, read, (int fd, void *to, size_t size), (fd, to, size))
ON_FD(READ, ssize_t, readv, (int fd, const struct iovec *to, int count), (fd, to, count))
ON_FD(READ, ssize_t, recv, (int fd, void *to, size_t size, int flags), (fd, to, size, flags))
ON_FD(READ, ssize_t, recvfrom,
      (int fd, void *to, size_t size, int flags, struct sockaddr *from, socklen_t *length),
      (fd, to, size, flags, from, length))
ON_FD(READ, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
ON_FD(PREAD, ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
ON_FD(PREAD, ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
ON_FD(WRITE, ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size))
ON_FD(WRITE, ssize_t, writev, (int fd, const struct iovec *from, int count), (fd, from, count))
ON_FD(WRITE, ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
ON_FD(WRITE, ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
ON_FD(WRITE, ssize_t, send, (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
ON_FD(WRITE, ssize_t, sendto,
      (int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t length),
      (fd, from, size, flags, to, length))
ON_FD(WRITE, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
ON_FD(FSYNC, int, fsync, (int fd), (fd))
ON_FD(FSYNC, int, fdatasync, (int fd), (fd))
ON_FD(FLOCK, int, flock, (int fd, int operation), (fd, operation))
ON_FD(FSTAT, int, fstat, (int fd, struct stat *status), (fd, status))
ON_FD(FSTAT, int, fstat64, (int fd, struct stat64 *status), (fd, status))

ssize_t __read_chk(int fd, void *to, size_t size, size_t most) { (void) most; return read(fd, to, size); }
ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t most) {
    (void) most;
    return pread64(fd, to, size, at);
}
ssize_t __recv_chk(int fd, void *to, size_t size, size_t most, int flags) {
    (void) most;
    return recv(fd, to, size, flags);
}
ssize_t __recvfrom_chk(int fd, void *to, size_t size, size_t most, int flags, struct sockaddr *from,
                       socklen_t *length) {
    (void) most;
    return recvfrom(fd, to, size, flags, from, length);
}

/* ------------------------------------------------------------------ names */

#define ON_PATH(call, result, name, folder, parameters, arguments) \
    result name parameters { \
        REAL(name); \
        if (fails(call, tree_of_path(folder, path), path)) return -1; \
        return real arguments; \
    }
ON_PATH(STAT, int, stat, -1, (const char *path, struct stat *status), (path, status))
ON_PATH(STAT, int, stat64, -1, (const char *path, struct stat64 *status), (path, status))
ON_PATH(STAT, int, lstat, -1, (const char *path, struct stat *status), (path, status))
ON_PATH(STAT, int, lstat64, -1, (const char *path, struct stat64 *status), (path, status))
ON_PATH(STAT, int, fstatat, folder, (int folder, const char *path, struct stat *status, int flags),
        (folder, path, status, flags))
ON_PATH(STAT, int, fstatat64, folder, (int folder, const char *path, struct stat64 *status, int flags),
        (folder, path, status, flags))
ON_PATH(READLINK, ssize_t, readlink, -1, (const char *path, char *to, size_t size), (path, to, size))
ON_PATH(READLINK, ssize_t, readlinkat, folder, (int folder, const char *path, char *to, size_t size),
        (folder, path, to, size))
ON_PATH(RENAME, int, rename, -1, (const char *path, const char *to), (path, to))
ON_PATH(RENAME, int, renameat, folder, (int folder, const char *path, int other, const char *to),
        (folder, path, other, to))
ON_PATH(UNLINK, int, unlink, -1, (const char *path), (path))
ON_PATH(UNLINK, int, unlinkat, folder, (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(MKDIR, int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
ON_PATH(MKDIR, int, mkdirat, folder, (int folder, const char *path, mode_t mode), (folder, path, mode))

ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t most) {
    (void) most;
    return readlink(path, to, size);
}

/* ------------------------------------------------------------------ sockets and threads */

/* Datagrams come from the kernel, or from a fake tree in its place. */
int socket(int family, int type, int protocol) {
    REAL(socket);
    int is_stream = (type & 0xf) == SOCK_STREAM;
    int tree = NOTHING;
    if (family == AF_NETLINK || (family == AF_UNIX && !is_stream)) tree = HARDWARE;
    else if (family == AF_UNIX) tree = KUBELET;
    else if (is_stream) tree = API;
    if (fails(SOCKET, tree, NULL)) return -1;
    return note_socket(real(family, type, protocol), tree);
}

/* Whoever listens on a port is no client of the API server, nor does the kubelet come to a socket in
 * another folder. */
int bind(int fd, const struct sockaddr *address, socklen_t length) {
    REAL(bind);
    if (tree_of_fd(fd) == API) note(fd, NOTHING);
    if (tree_of_fd(fd) == KUBELET && address->sa_family == AF_UNIX)
        note_socket(fd, tree_of_path(-1, ((const struct sockaddr_un *) address)->sun_path));
    if (fails(BIND, tree_of_fd(fd), NULL)) return -1;
    return real(fd, address, length);
}

ON_FD(LISTEN, int, listen, (int fd, int backlog), (fd, backlog))

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    REAL(connect);
    int does_fail = fails(CONNECT, tree_of_fd(fd), NULL);
    if (!does_fail) return real(fd, address, length);
    int error = errno;
    if (error == EINTR) real(fd, address, length);
    errno = error;
    return -1;
}

int accept(int fd, struct sockaddr *address, socklen_t *length) {
    REAL(accept);
    int tree = tree_of_fd(fd);
    if (fails(ACCEPT, tree, NULL)) return -1;
    return note_socket(real(fd, address, length), tree);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    REAL(accept4);
    int tree = tree_of_fd(fd);
    if (fails(ACCEPT, tree, NULL)) return -1;
    return note_socket(real(fd, address, length, flags), tree);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *with) {
    REAL(pthread_create);
    if (fails(CLONE, PROCESS, NULL)) return errno;
    return real(thread, attributes, start, with);
}
