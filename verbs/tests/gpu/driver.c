/* A GPU's driver without a GPU, under the names of CUDA's driver API, or with -DHIP those of HIP: what it allocates has
 * an address at which any access fails, and is reached by copies only. Copies on a stream happen when it is
 * synchronized, and then or never. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOCKED(code) \
    do { \
        pthread_mutex_lock(&lock); \
        code; \
        pthread_mutex_unlock(&lock); \
    } while (0)

enum { OK, INVALID = 1, FAILED = 700, NO_CONTEXT = 201, MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *device, *behind; size_t len; } blocks[MAX];
static struct { void *to; const void *from; size_t len; int to_device; } waiting[MAX];
static int waits, streams;
/* Copies on streams that fail: 1 those to the device, 0 those to the host, -1 none. */
static int fails = -1;

int fake_streams(void) { return streams; }
void fake_fail(int to_device) { LOCKED(fails = to_device); }

/* The bytes behind device memory, or NULL for any other range. Under the lock. */
static char *behind(const void *at, size_t len) {
    for (int i = 0; i < MAX; i++) {
        size_t offset = (size_t)((const char *)at - blocks[i].device);
        if (blocks[i].len && (const char *)at >= blocks[i].device && offset <= blocks[i].len && len <= blocks[i].len - offset)
            return blocks[i].behind + offset;
    }
    return NULL;
}

static int copy(void *to, const void *from, size_t len, int to_device) {
    char *there = behind(to_device ? to : from, len);
    if (!there) return INVALID;
    if (to_device) memcpy(there, from, len);
    else memcpy(to, there, len);
    return OK;
}

static int later(void *to, const void *from, size_t len, int to_device) {
    int code = OK;
    LOCKED(if (waits == MAX) code = FAILED; else {
        waiting[waits].to = to; waiting[waits].from = from; waiting[waits].len = len;
        waiting[waits++].to_device = to_device;
    });
    return code;
}

static int synchronize(void) {
    int code = OK;
    LOCKED(for (int i = 0; i < waits; i++) {
        int to_device = waiting[i].to_device;
        int one = to_device == fails ? FAILED : copy(waiting[i].to, waiting[i].from, waiting[i].len, to_device);
        if (one) code = one;
    } waits = 0);
    return code;
}

static int now(void *to, const void *from, size_t len, int to_device) {
    int code;
    LOCKED(code = copy(to, from, len, to_device));
    return code;
}

static int allocate(void **device, size_t len) {
    int fd = memfd_create("gpu", MFD_CLOEXEC), code = FAILED;
    if (fd < 0 || ftruncate(fd, (off_t)len)) return FAILED;
    char *shown = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shown == MAP_FAILED || bytes == MAP_FAILED) return FAILED;
    LOCKED(for (int i = 0; code && i < MAX; i++) if (!blocks[i].len) {
        blocks[i].device = shown; blocks[i].behind = bytes; blocks[i].len = len; code = OK;
    });
    *device = shown;
    return code;
}

static int release(void *device) {
    LOCKED(for (int i = 0; i < MAX; i++) if (blocks[i].len && blocks[i].device == device) {
        munmap(blocks[i].behind, blocks[i].len);
        munmap(blocks[i].device, blocks[i].len);
        blocks[i].len = 0;
    });
    return OK;
}

static int is_device(const void *at) {
    int found;
    LOCKED(found = behind(at, 1) != NULL);
    return found;
}

#ifndef HIP
static char the_context;
static __thread void *stack[8];
static __thread int depth;

int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &the_context; return device ? 101 : OK; }
int cuDevicePrimaryCtxRelease(int device) { return device ? 101 : OK; }
int cuCtxGetCurrent(void **context) { *context = depth ? stack[depth - 1] : NULL; return OK; }
int cuCtxPushCurrent_v2(void *context) {
    if (context != &the_context || depth == 8) return NO_CONTEXT;
    stack[depth++] = context;
    return OK;
}
int cuCtxPopCurrent_v2(void **context) {
    if (!depth) return NO_CONTEXT;
    *context = stack[--depth];
    return OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int own;
    int before = own;
    own = *mode;
    *mode = before;
    return OK;
}
int cuPointerGetAttribute(void *to, int attribute, uint64_t at) {
    if (!is_device((void *)at)) return INVALID;
    switch (attribute) {
    case 1: *(void **)to = &the_context; return OK;
    case 2: *(unsigned *)to = 2; return OK;
    case 9: *(int *)to = 0; return OK;
    default: return INVALID;
    }
}
int cuStreamCreate(void **stream, unsigned flags) {
    if (!depth) return NO_CONTEXT;
    if (flags != 1) return INVALID;
    *stream = &waits;
    LOCKED(streams++);
    return OK;
}
int cuStreamDestroy_v2(void *stream) { LOCKED(streams--); return stream == &waits ? OK : INVALID; }
int cuStreamSynchronize(void *stream) { return !depth ? NO_CONTEXT : stream == &waits ? synchronize() : INVALID; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream) {
    return !depth ? NO_CONTEXT : stream == &waits ? later(to, (void *)from, len, 0) : INVALID;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream) {
    return !depth ? NO_CONTEXT : stream == &waits ? later((void *)to, from, len, 1) : INVALID;
}
int cuMemAlloc_v2(uint64_t *to, size_t len) { return depth ? allocate((void **)to, len) : NO_CONTEXT; }
int cuMemFree_v2(uint64_t at) { return release((void *)at); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t len) { return depth ? now(to, (void *)from, len, 0) : NO_CONTEXT; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t len) { return depth ? now((void *)to, from, len, 1) : NO_CONTEXT; }
#else
struct attributes { int kind, device; void *device_pointer, *host_pointer; int managed; unsigned flags; };
static __thread int error;

int hipRuntimeGetVersion(int *version) { *version = 60032830; return OK; }
int hipGetLastError(void) { int last = error; error = 0; return last; }
int hipPointerGetAttributes(struct attributes *to, const void *at) {
    memset(to, 0, sizeof *to);
    if (!is_device(at)) return error = INVALID;
    to->kind = 2;
    to->device_pointer = (void *)at;
    return OK;
}
int hipGetDevice(int *device) { *device = 0; return OK; }
int hipSetDevice(int device) { return device ? 101 : OK; }
int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    if (flags != 1) return INVALID;
    *stream = &waits;
    LOCKED(streams++);
    return OK;
}
int hipStreamDestroy(void *stream) { LOCKED(streams--); return stream == &waits ? OK : INVALID; }
int hipStreamSynchronize(void *stream) { return stream == &waits ? synchronize() : INVALID; }
int hipMemcpyAsync(void *to, const void *from, size_t len, int kind, void *stream) {
    return stream == &waits && (kind == 1 || kind == 2) ? later(to, from, len, kind == 1) : INVALID;
}
int hipMalloc(void **to, size_t len) { return allocate(to, len); }
int hipFree(void *at) { return release(at); }
int hipMemcpy(void *to, const void *from, size_t len, int kind) { return now(to, from, len, kind == 1); }
#endif
