/* Makes a container's loader know libraries that were mounted into it.
 *
 *     claimd-ld-cache [--cuda-compat MAJOR] FOLDER NAME...
 *
 * A container runtime runs it as a createContainer hook: as root of the container's user
 * namespace, in the container's mount namespace, while the root is still the host's. It adds
 * FOLDER/NAME to /etc/ld.so.cache of the container, as ldconfig would find them, and FOLDER to the
 * path of musl's loader. With --cuda-compat it puts the libraries of the image's
 * /usr/local/cuda/compat before them if these are of a driver whose major version is higher.
 *
 * The image may be hostile. Therefore:
 *
 * - It is linked statically, and its specs give it an environment of its own: no variable of the
 *   image reaches a loader. It runs no other program and loads no library.
 * - Each path of the image is resolved by the kernel as if the container's root were the root, on
 *   a private copy of that one mount. Links cannot lead out, and volumes are not there at all.
 * - What has to be understood of files is understood by a child that may only read and write what
 *   is open (seccomp's strict mode). It ends with its parent, which has five seconds.
 * - It only ever writes in /etc of the container's own root file system, by a new file that takes
 *   the place of the old one.
 *
 * It ends with 0 whatever happens: a container without the cache still finds the libraries where
 * loaders look by themselves. What went wrong is said to standard error.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- what the kernel calls them
 *
 * Said here, since the headers of small C libraries are without them. */

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

enum {
    OPEN_TREE_CLONE_ = 1,
    RESOLVE_NO_XDEV_ = 0x01,
    RESOLVE_NO_MAGICLINKS_ = 0x02,
    RESOLVE_IN_ROOT_ = 0x10,
    MOUNT_ATTR_RDONLY_ = 0x01,
    SECCOMP_STRICT = 1,
};

struct how {
    uint64_t flags, mode, resolve;
};

struct mount_attributes {
    uint64_t set, clear, propagation, user_namespace;
};

/* ---------------------------------------------------------------- limits */

enum {
    SECONDS = 5,
    MOST_JSON = 16 << 20,
    MOST_CACHE = 16 << 20,
    MOST_TEXT = 1 << 16,
    MOST_NAMES = 256,
    LONGEST_PATH = 4096,
};

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "claimd-ld-cache: %s: %s\n", what, why);
    exit(0);
}

static void too_late(int signal) {
    (void)signal;
    _exit(0);
}

/* ---------------------------------------------------------------- bytes */

struct bytes {
    char *start;
    size_t size;
};

/* All that can be read, or nothing (`start` is NULL) if it is more than `most`. */
static struct bytes read_all(int file, size_t most) {
    struct bytes all = {malloc(most + 1), 0};
    while (all.start != NULL) {
        ssize_t count = read(file, all.start + all.size, most + 1 - all.size);
        if (count == 0)
            return all;
        if (count < 0 && errno == EINTR)
            continue;
        if (count > 0)
            all.size += (size_t)count;
        if (count < 0 || all.size > most) {
            free(all.start);
            all.start = NULL;
        }
    }
    return (struct bytes){NULL, 0};
}

static int write_all(int file, const char *start, size_t size) {
    while (size > 0) {
        ssize_t count = write(file, start, size);
        if (count < 0 && errno != EINTR)
            return -1;
        if (count > 0) {
            start += count;
            size -= (size_t)count;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- a child that cannot do harm */

/* What `work` makes of its input, which is a stranger's. It gets room for its output and says how
 * much it used, 0 for nothing. It must not ask the kernel for anything, memory included. */
static struct bytes confined(size_t (*work)(struct bytes in, char *out, const void *with),
                             struct bytes in, size_t room, const void *with) {
    char *out = malloc(room);
    int ends[2];
    if (out == NULL || pipe2(ends, O_CLOEXEC) != 0)
        give_up("a pipe", strerror(errno));

    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0)
        give_up("a child", strerror(errno));
    if (child == 0) {
        /* The alarm is the parent's alone. The child dies with the parent, or by its own limit. */
        struct rlimit limit = {SECONDS, SECONDS};
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
            setrlimit(RLIMIT_CPU, &limit) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_STRICT) != 0)
            _exit(1);
        size_t size = work(in, out, with);
        int failed = size == 0 || write_all(ends[1], out, size) != 0;
        syscall(SYS_exit, failed);
    }

    close(ends[1]);
    struct bytes answer = read_all(ends[0], room);
    close(ends[0]);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || answer.size == 0)
        answer.start = NULL;
    free(out);
    return answer;
}

/* ---------------------------------------------------------------- JSON */

static const char *skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* Behind a string that begins here. */
static const char *skip_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at < end ? at + 1 : end;
}

/* Behind a value that begins here. */
static const char *skip_value(const char *at, const char *end) {
    int depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            if (depth == 0)
                return at;
            depth--;
            at++;
        } else if (depth == 0 && *at == ',') {
            return at;
        } else {
            at++;
            continue;
        }
        if (depth == 0)
            return at;
    }
    return end;
}

/* Where the value of a key of the object begins that begins here; NULL if it has none. */
static const char *member(const char *at, const char *end, const char *key) {
    size_t length = strlen(key);
    at = skip_space(at, end);
    if (at == end || *at != '{')
        return NULL;
    for (at = skip_space(at + 1, end); at < end && *at == '"';) {
        const char *name = at + 1;
        at = skip_string(at, end);
        int found = (size_t)(at - name) == length + 1 && memcmp(name, key, length) == 0;
        at = skip_space(at, end);
        if (at == end || *at != ':')
            return NULL;
        at = skip_space(at + 1, end);
        if (found)
            return at;
        at = skip_space(skip_value(at, end), end);
        if (at == end || *at != ',')
            return NULL;
        at = skip_space(at + 1, end);
    }
    return NULL;
}

/* `with` is a list of keys that ends with NULL, from the outside to the inside. The output is the
 * text below them. Escapes are not expected in a path that a runtime made. */
static size_t text_at(struct bytes in, char *out, const void *with) {
    const char *at = in.start, *end = in.start + in.size;
    for (const char *const *key = with; *key != NULL && at != NULL; key++)
        at = member(at, end, *key);
    if (at == NULL || at == end || *at != '"')
        return 0;
    const char *behind = skip_string(at, end);
    size_t size = (size_t)(behind - at) - 2;
    if (behind - at < 3 || behind[-1] != '"' || size >= LONGEST_PATH ||
        memchr(at, '\\', (size_t)(behind - at)) != NULL)
        return 0;
    memcpy(out, at + 1, size);
    return size;
}

static char *path_in(struct bytes json, const char *const *keys, const char *what) {
    struct bytes answer = confined(text_at, json, LONGEST_PATH, keys);
    if (answer.start == NULL || memchr(answer.start, 0, answer.size) != NULL)
        give_up(what, "is not said");
    answer.start[answer.size] = 0;
    return answer.start;
}

/* ---------------------------------------------------------------- the loader's cache
 *
 * A head, a table with an entry for each library, then texts and perhaps an extension. Offsets
 * count from the head. The table is sorted by name, the highest first, since loaders halve it. */

enum {
    HEAD = 48,
    ENTRY = 24,
    AT_COUNT = 20,
    AT_TEXT_SIZE = 24,
    AT_FLAGS = 28,
    AT_EXTENSION = 32,
    OLD_HEAD = 16,
    OLD_ENTRY = 12,
    LITTLE_ENDIAN_CACHE = 2,
    GENERATOR = 0,
    HWCAPS = 1,
};

static const char MAGIC[] = "glibc-ld.so.cache1.1";
static const char OLD_MAGIC[] = "ld.so-1.7.0";
static const uint32_t EXTENSION_MAGIC = 0xEAA42174u;

#if defined(__x86_64__)
static const uint32_t KIND = 0x0303;
static const char *const GLIBC = "lib64/ld-linux-x86-64.so.2";
static const char *const MUSL = "lib/ld-musl-x86_64.so.1";
static const char *const MUSL_PATH = "ld-musl-x86_64.path";
#elif defined(__aarch64__)
static const uint32_t KIND = 0x0A03;
static const char *const GLIBC = "lib/ld-linux-aarch64.so.1";
static const char *const MUSL = "lib/ld-musl-aarch64.so.1";
static const char *const MUSL_PATH = "ld-musl-aarch64.path";
#else
#error "which number glibc has for this processor must be added"
#endif

struct library {
    const char *name, *path;
};

struct libraries {
    struct library list[MOST_NAMES];
    size_t count;
};

static uint32_t get(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put(char *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static int is_digit(char letter) {
    return letter >= '0' && letter <= '9';
}

/* As glibc orders names: numbers in them by their value, and behind everything else. */
static int compare(const char *one, const char *other) {
    for (;;) {
        if (is_digit(*one) && is_digit(*other)) {
            uint32_t first = 0, second = 0;
            for (; is_digit(*one); one++)
                first = first * 10 + (uint32_t)(*one - '0');
            for (; is_digit(*other); other++)
                second = second * 10 + (uint32_t)(*other - '0');
            if (first != second)
                return first < second ? -1 : 1;
        } else if (is_digit(*one) != is_digit(*other)) {
            return is_digit(*one) ? 1 : -1;
        } else if (*one != *other) {
            return *one < *other ? -1 : 1;
        } else if (*one == 0) {
            return 0;
        } else {
            one++;
            other++;
        }
    }
}

/* A text of the cache that ends within it. */
static const char *text_of(struct bytes cache, uint32_t offset) {
    if (offset < HEAD || offset >= cache.size ||
        memchr(cache.start + offset, 0, cache.size - offset) == NULL)
        return NULL;
    return cache.start + offset;
}

/* The form that is written today, behind an older one as glibc wrote both for long. */
static struct bytes without_old_form(struct bytes cache) {
    if (cache.size >= OLD_HEAD && memcmp(cache.start, OLD_MAGIC, sizeof OLD_MAGIC - 1) == 0) {
        uint64_t size = OLD_HEAD + (uint64_t)get(cache.start + OLD_HEAD - 4) * OLD_ENTRY;
        size = (size + 7) / 8 * 8;
        if (size > cache.size)
            return (struct bytes){NULL, 0};
        cache.start += size;
        cache.size -= size;
    }
    if (cache.size < HEAD || memcmp(cache.start, MAGIC, sizeof MAGIC - 1) != 0)
        return (struct bytes){NULL, 0};
    return cache;
}

/* The offsets in the extension, which all move by `shift`. Says whether they are understood. */
static int shift_extension(struct bytes cache, size_t least, uint32_t shift) {
    uint32_t offset = get(cache.start + AT_EXTENSION);
    if (offset == 0)
        return 1;
    if (offset < least || offset % 4 != 0 || offset > cache.size - 8)
        return 0;
    char *extension = cache.start + offset;
    uint32_t count = get(extension + 4);
    if (get(extension) != EXTENSION_MAGIC || count > 64 || cache.size - offset < 8 + count * 16)
        return 0;

    put(cache.start + AT_EXTENSION, offset + shift);
    for (uint32_t section = 0; section < count; section++) {
        char *at = extension + 8 + section * 16;
        uint32_t tag = get(at), start = get(at + 8), size = get(at + 12);
        if (start < least || start > cache.size || size > cache.size - start)
            return 0;
        if (tag != GENERATOR && tag != HWCAPS)
            return 0;
        for (uint32_t place = 0; tag == HWCAPS && place + 4 <= size; place += 4)
            put(cache.start + start + place, get(cache.start + start + place) + shift);
        put(at + 8, start + shift);
    }
    return 1;
}

/* The cache with the libraries of `with` before those of the same names. */
static size_t add_libraries(struct bytes in, char *out, const void *with) {
    const struct libraries *libraries = with;
    struct bytes cache = without_old_form(in);
    if (cache.start == NULL)
        return 0;
    uint32_t count = get(cache.start + AT_COUNT);
    if (count > (cache.size - HEAD) / ENTRY)
        return 0;
    size_t table_end = HEAD + (size_t)count * ENTRY;
    uint32_t shift = (uint32_t)(libraries->count * ENTRY);
    if (!shift_extension(cache, table_end, shift))
        return 0;

    /* The table, merged; what is new has its texts behind everything. */
    char *entry = out + HEAD;
    char *text = out + cache.size + shift;
    size_t old = 0, new = 0;
    while (old < count || new < libraries->count) {
        const char *at = cache.start + HEAD + old * ENTRY;
        const char *name = NULL;
        if (old < count) {
            name = text_of(cache, get(at + 4));
            if (name == NULL || text_of(cache, get(at + 8)) == NULL)
                return 0;
        }
        const struct library *library = &libraries->list[new];
        if (new < libraries->count && (name == NULL || compare(library->name, name) >= 0)) {
            memset(entry, 0, ENTRY);
            put(entry, KIND);
            put(entry + 4, (uint32_t)(text - out));
            text = stpcpy(text, library->name) + 1;
            put(entry + 8, (uint32_t)(text - out));
            text = stpcpy(text, library->path) + 1;
            new++;
        } else {
            memcpy(entry, at, ENTRY);
            put(entry + 4, get(at + 4) + shift);
            put(entry + 8, get(at + 8) + shift);
            old++;
        }
        entry += ENTRY;
    }

    memcpy(out, cache.start, HEAD);
    memcpy(entry, cache.start + table_end, cache.size - table_end);
    put(out + AT_COUNT, count + (uint32_t)libraries->count);
    put(out + AT_TEXT_SIZE,
        get(out + AT_TEXT_SIZE) + (uint32_t)(text - (out + cache.size + shift)));
    return (size_t)(text - out);
}

/* Highest name first, those of one name as they came. */
static void sort(struct libraries *libraries) {
    for (size_t index = 1; index < libraries->count; index++) {
        struct library moving = libraries->list[index];
        size_t place = index;
        for (; place > 0 && compare(libraries->list[place - 1].name, moving.name) < 0; place--)
            libraries->list[place] = libraries->list[place - 1];
        libraries->list[place] = moving;
    }
}

static size_t room_for(struct bytes cache, const struct libraries *libraries) {
    size_t room = cache.size;
    for (size_t index = 0; index < libraries->count; index++)
        room += ENTRY + strlen(libraries->list[index].name) + 1 +
                strlen(libraries->list[index].path) + 1;
    return room;
}

/* ---------------------------------------------------------------- files of the container */

/* The container's root file system alone, without what is mounted into it. */
static int open_root(const char *path) {
    int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        give_up(path, strerror(errno));
    int copy = (int)syscall(SYS_open_tree, root, "",
                            OPEN_TREE_CLONE_ | O_CLOEXEC | AT_EMPTY_PATH);
    if (copy < 0)
        give_up("a private copy of the container's root", strerror(errno));
    close(root);
    return copy;
}

/* Opens a path as the container would. */
static int open_inside(int root, const char *path, int flags) {
    struct how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = RESOLVE_IN_ROOT_ | RESOLVE_NO_XDEV_ | RESOLVE_NO_MAGICLINKS_,
    };
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

static int is_there(int root, const char *path) {
    int file = open_inside(root, path, O_PATH);
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* A regular file; nothing if there is none, or none of this size. */
static struct bytes content_of(int root, const char *path, size_t most) {
    struct bytes content = {NULL, 0};
    struct stat status;
    int file = open_inside(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return content;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode))
        content = read_all(file, most);
    close(file);
    return content;
}

/* A new file in a folder. Some runtimes have made the root read-only by now: our copy of the mount
 * may be made writable again, and nobody else sees it. */
static int create(int root, int folder, const char *name) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int file = openat(folder, name, flags, 0644);
    if (file < 0 && errno == EEXIST && unlinkat(folder, name, 0) == 0)
        file = openat(folder, name, flags, 0644);
    if (file < 0 && errno == EROFS) {
        struct mount_attributes writable = {.clear = MOUNT_ATTR_RDONLY_};
        if (syscall(SYS_mount_setattr, root, "", AT_EMPTY_PATH, &writable, sizeof writable) == 0)
            file = openat(folder, name, flags, 0644);
    }
    return file;
}

static void replace(int root, int folder, const char *name, struct bytes content) {
    const char *unfinished = ".claimd-ld-cache";
    int file = create(root, folder, unfinished);
    if (file < 0)
        give_up(name, strerror(errno));
    int failed = fchmod(file, 0644) != 0 || write_all(file, content.start, content.size) != 0;
    failed = close(file) != 0 || failed;
    if (failed || renameat(folder, unfinished, folder, name) != 0) {
        int reason = errno;
        unlinkat(folder, unfinished, 0);
        give_up(name, strerror(reason));
    }
}

/* ---------------------------------------------------------------- what is added */

static char *joined(const char *folder, const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        give_up("a path", strerror(ENOMEM));
    return path;
}

static void add(struct libraries *libraries, const char *folder, const char *name) {
    if (libraries->count == MOST_NAMES)
        return;
    libraries->list[libraries->count++] =
        (struct library){.name = strdup(name), .path = joined(folder, name)};
}

/* CUDA's libraries in the image, if they are of a newer driver than the host's. */
static void add_cuda_compat(struct libraries *libraries, int root, long major) {
    const char *folder = "/usr/local/cuda/compat";
    int opened = open_inside(root, folder + 1, O_RDONLY | O_DIRECTORY);
    DIR *entries = opened >= 0 ? fdopendir(opened) : NULL;
    if (entries == NULL)
        return;

    struct libraries found = {.count = 0};
    int newer = 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *name = entry->d_name;
        if (strncmp(name, "lib", 3) != 0 || strstr(name, ".so.") == NULL)
            continue;
        add(&found, folder, name);
        if (strncmp(name, "libcuda.so.", 11) == 0 && strtol(name + 11, NULL, 10) > major)
            newer = 1;
    }
    closedir(entries);
    for (size_t index = 0; newer && index < found.count; index++)
        if (libraries->count < MOST_NAMES)
            libraries->list[libraries->count++] = found.list[index];
}

static void tell_glibc(int root, int etc, struct libraries *libraries) {
    struct bytes old = content_of(root, "etc/ld.so.cache", MOST_CACHE);
    if (old.start == NULL && is_there(root, "etc/ld.so.cache"))
        give_up("/etc/ld.so.cache", "is no file of a cache's size");

    /* An image may have a loader and no cache, which is as good as an empty one. */
    char empty[HEAD] = {0};
    if (old.start == NULL) {
        if (!is_there(root, GLIBC))
            return;
        memcpy(empty, MAGIC, sizeof MAGIC - 1);
        empty[AT_FLAGS] = LITTLE_ENDIAN_CACHE;
        old = (struct bytes){empty, sizeof empty};
    }

    sort(libraries);
    struct bytes new = confined(add_libraries, old, room_for(old, libraries), libraries);
    if (new.start == NULL)
        give_up("/etc/ld.so.cache", "is of a form that is not known");
    replace(root, etc, "ld.so.cache", new);
}

/* A file with folders, by lines or colons. Where it is missing there is a path of old. */
static void tell_musl(int root, int etc, const char *folder) {
    if (!is_there(root, MUSL))
        return;
    char *name = joined("etc", MUSL_PATH), *text;
    struct bytes old = content_of(root, name, MOST_TEXT);
    if (old.start == NULL && is_there(root, name))
        give_up(name, "is no short file");
    if (old.start == NULL)
        old = (struct bytes){"/lib:/usr/local/lib:/usr/lib", 28};
    int size = asprintf(&text, "%.*s\n%s\n", (int)old.size, old.start, folder);
    if (size < 0)
        give_up(name, strerror(ENOMEM));
    replace(root, etc, MUSL_PATH, (struct bytes){text, (size_t)size});
}

int main(int count, char **arguments) {
    /* Whoever installs it asks whether it can be run. */
    if (count == 2 && strcmp(arguments[1], "--version") == 0)
        return puts("claimd-ld-cache 1") < 0;

    signal(SIGALRM, too_late);
    alarm(SECONDS);
    umask(022);

    /* Where the container is: on standard input, and in the file that the runtime goes by. */
    struct bytes state = read_all(STDIN_FILENO, MOST_JSON);
    if (state.start == NULL)
        give_up("the state of the container", "is too long");
    char *bundle = path_in(state, (const char *const[]){"bundle", NULL}, "the bundle");
    char *config_path = joined(bundle, "config.json");
    int config_file = open(config_path, O_RDONLY | O_CLOEXEC);
    struct bytes config = read_all(config_file, MOST_JSON);
    if (config.start == NULL)
        give_up(config_path, "cannot be read");
    close(config_file);
    char *path = path_in(config, (const char *const[]){"root", "path", NULL}, "the root");
    if (path[0] != '/')
        path = joined(bundle, path);

    int root = open_root(path);
    int etc = open_inside(root, "etc", O_PATH | O_DIRECTORY);
    if (etc < 0)
        give_up("/etc of the container", strerror(errno));

    /* The image's own come first, and of one name the first counts. */
    struct libraries libraries = {.count = 0};
    int next = 1;
    if (next + 1 < count && strcmp(arguments[next], "--cuda-compat") == 0) {
        add_cuda_compat(&libraries, root, strtol(arguments[next + 1], NULL, 10));
        next += 2;
    }
    if (next >= count)
        give_up("usage", "claimd-ld-cache [--cuda-compat MAJOR] FOLDER NAME...");
    const char *folder = arguments[next++];
    for (; next < count; next++)
        add(&libraries, folder, arguments[next]);

    tell_musl(root, etc, folder);
    tell_glibc(root, etc, &libraries);
    return 0;
}
