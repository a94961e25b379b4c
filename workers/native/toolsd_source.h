/* toolsd_source.h: what a shared library exports to be a source of toolsd, ABI 1.
 *
 *     cc -shared -fPIC -I"$(toolsd include)" -o greet.so greet.c
 *
 * A library exports one function, toolsd_source_entry, which gives a toolsd_source: a name, the tools, a function that
 * runs a batch of calls, and one that lets go of everything. The library lives in one sandboxed process. All functions
 * are called on that process's main thread, one at a time; a crash ends this process and fails the turn it held.
 *
 * Text is UTF-8. A pointer's owner is said where it stands. "Host" is toolsd.
 */
#ifndef TOOLSD_SOURCE_H
#define TOOLSD_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOOLSD_ABI 1
#define TOOLSD_NO_DEADLINE INT64_MAX

/* Text of `size` bytes, and a NUL after them that `size` does not count. */
typedef struct toolsd_text {
    const char *data;
    size_t size;
} toolsd_text;

/* How the memory of results is made: `allocate` gives NULL when there is none. Memory belongs to the library until it
 * stands in a toolsd_result; `release` takes back what never gets there. Both may be called from any thread. */
typedef struct toolsd_allocator {
    void *(*allocate)(size_t size);
    void (*release)(void *memory);
} toolsd_allocator;

/* toolsd_tool.flags */
#define TOOLSD_IDEMPOTENT 1u /* running a call of it twice does no harm */

/* A tool. The strings are the library's; they must not change or go before `deinit`. */
typedef struct toolsd_tool {
    const char *name;        /* letters, digits, '_' and '-' */
    const char *description; /* for the model */
    const char *parameters;  /* a JSON schema of type "object"; NULL: no arguments */
    uint32_t flags;
} toolsd_tool;

/* One call. Everything in it is the host's and lives until invoke_batch returns. */
typedef struct toolsd_call {
    uint32_t tool_index;   /* which of toolsd_source.tools */
    toolsd_text tool;      /* its name */
    toolsd_text id;        /* the model's id of the call; data is NULL if it gave none */
    toolsd_text arguments; /* one JSON object that fits the tool's schema */
} toolsd_call;

/* toolsd_result.kind */
enum {
    TOOLSD_EMPTY = 0, /* as the host gives it; a slot that is still so at the end fails the batch */
    TOOLSD_TEXT = 1,  /* UTF-8 */
    TOOLSD_JSON = 2,  /* one JSON value */
    TOOLSD_BYTES = 3, /* bytes of the type `mime`; "image/..." is a picture */
    TOOLSD_ERROR = 4  /* UTF-8, what was wrong and what would be right, for the model to read; stays in its slot */
};

/* The slot of one call. `data` comes from the allocator and is the host's from the moment invoke_batch returns, or
 * `finished` is called for the slot; NULL when size is 0. `mime` stays the library's and must live until then. */
typedef struct toolsd_result {
    uint32_t kind;
    const char *mime;
    char *data;
    size_t size;
} toolsd_result;

/* toolsd_context.log */
enum { TOOLSD_DEBUG = 0, TOOLSD_INFO = 1, TOOLSD_WARNING = 2, TOOLSD_LOG_ERROR = 3 };

/* What a batch may know and say. It is the host's and lives until invoke_batch returns, with all it points to. The
 * functions may be called from any thread, until then; `call` is an index into `calls`. Texts given to them stay the
 * library's: the host copies. */
typedef struct toolsd_context {
    void *host;          /* not for the library */
    toolsd_text turn;    /* the turn's id */
    toolsd_text session; /* the session the caller named; data is NULL if none */
    int64_t deadline;    /* CLOCK_MONOTONIC, nanoseconds, or TOOLSD_NO_DEADLINE. Past it the process is killed. */
    /* Not 0 once somebody asked the batch to stop: return soon, whatever is filled. Who does not is killed. */
    int (*cancelled)(const struct toolsd_context *context);
    /* The call begins to run: what is told when the process dies in it. See TOOLSD_TELLS. */
    void (*started)(const struct toolsd_context *context, size_t call);
    /* The slot is filled and may be sent on before the batch is over. Not needed: all are taken at the end. */
    void (*finished)(const struct toolsd_context *context, size_t call);
    /* How far a call is: `done` of `total` (0: not known); `message` may be NULL. */
    void (*progress)(const struct toolsd_context *context, size_t call, double done, double total,
                     const char *message);
    /* A piece of output before the result. */
    void (*write)(const struct toolsd_context *context, size_t call, const char *text, size_t size);
    void (*log)(const struct toolsd_context *context, size_t call, int level, const char *message);
    /* Why invoke_batch is about to return something else than 0. */
    void (*fail)(const struct toolsd_context *context, const char *message);
} toolsd_context;

/* toolsd_source.flags */
#define TOOLSD_TELLS 1u /* it calls `started` for each call; without it all count as started when the batch does */

/* The source. The library's, from the return of toolsd_source_entry to the end of the process. */
typedef struct toolsd_source {
    uint32_t abi; /* the ABI this struct has; first in every ABI */
    uint32_t flags;
    const char *name;
    const toolsd_tool *tools;
    size_t tool_count;
    void *state; /* the library's own, given back to its functions */
    /* Run `n` calls, in any order, and fill results[0..n). 0: done. Anything else fails the whole batch and turn. */
    int32_t (*invoke_batch)(void *state, const toolsd_context *context, const toolsd_call *calls,
                            toolsd_result *results, size_t n, const toolsd_allocator *allocator);
    /* Called once when the source is taken away; NULL: nothing to do. Nothing is called after it. */
    void (*deinit)(void *state);
} toolsd_source;

/* What the host speaks; first in every ABI. The host's, until toolsd_source_entry returns. */
typedef struct toolsd_host {
    uint32_t abi_oldest;
    uint32_t abi_newest;
    /* Why toolsd_source_entry is about to return NULL. */
    void (*fail)(const struct toolsd_host *host, const char *message);
} toolsd_host;

#if defined(__GNUC__)
#define TOOLSD_EXPORT __attribute__((visibility("default")))
#else
#define TOOLSD_EXPORT
#endif

/* The one function the library exports. NULL: the source cannot be used. A library that knows several ABIs gives the
 * newest that lies between the host's two; one that knows only this gives it, and the host says if it cannot. */
TOOLSD_EXPORT const toolsd_source *toolsd_source_entry(const toolsd_host *host);

/* --- ways to fill a slot, each copies what it is given ------------------------------------------------------------ */

static inline void toolsd_fill(toolsd_result *result, const toolsd_allocator *allocator, uint32_t kind,
                               const char *data, size_t size) {
    result->kind = kind;
    result->size = size;
    result->data = size ? (char *)allocator->allocate(size) : NULL;
    if (result->data)
        memcpy(result->data, data, size);
    else if (size)
        result->kind = TOOLSD_ERROR; /* an error with a size and no data says: no memory */
}

static inline void toolsd_ok_text(toolsd_result *result, const toolsd_allocator *allocator, const char *text) {
    toolsd_fill(result, allocator, TOOLSD_TEXT, text, strlen(text));
}

static inline void toolsd_ok_json(toolsd_result *result, const toolsd_allocator *allocator, const char *json) {
    toolsd_fill(result, allocator, TOOLSD_JSON, json, strlen(json));
}

static inline void toolsd_error(toolsd_result *result, const toolsd_allocator *allocator, const char *message) {
    toolsd_fill(result, allocator, TOOLSD_ERROR, message, strlen(message));
}

/* --- running the calls one after the other ------------------------------------------------------------------------ */

typedef void (*toolsd_handler)(void *state, const toolsd_context *context, size_t index, const toolsd_call *call,
                               toolsd_result *result, const toolsd_allocator *allocator);

/* All that invoke_batch of a simple source needs: `handlers` has one function for each tool, in their order. */
static inline int32_t toolsd_in_order(const toolsd_handler *handlers, void *state, const toolsd_context *context,
                                      const toolsd_call *calls, toolsd_result *results, size_t n,
                                      const toolsd_allocator *allocator) {
    for (size_t i = 0; i < n && !context->cancelled(context); i++) {
        context->started(context, i);
        handlers[calls[i].tool_index](state, context, i, &calls[i], &results[i], allocator);
        if (results[i].kind != TOOLSD_EMPTY)
            context->finished(context, i);
    }
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
