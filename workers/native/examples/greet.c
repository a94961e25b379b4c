/* A source in C. Build and try it:
 *
 *     cc -shared -fPIC -O2 -I"$(toolsd include)" -o greet.so greet.c
 */
#include "toolsd_source.h"

#include <stdio.h>
#include <stdlib.h>

/* State lives as long as the process: across turns. */
struct state {
    uint64_t greeted;
};

/* {"times": 3}: the arguments are valid JSON that fits the schema below, so the digits are easy to find. A tool with
 * more than that uses a JSON library. */
static long number(const char *arguments, const char *name, long otherwise) {
    const char *at = strstr(arguments, name);
    return at && (at = strchr(at, ':')) ? strtol(at + 1, NULL, 10) : otherwise;
}

static void greet(void *state, const toolsd_context *context, size_t index, const toolsd_call *call,
                  toolsd_result *result, const toolsd_allocator *allocator) {
    struct state *own = state;
    long times = number(call->arguments.data, "\"times\"", 1);
    char text[256] = "";
    size_t used = 0;
    (void)context, (void)index;
    if (times < 1 || times > 20) {
        toolsd_error(result, allocator, "times must be from 1 to 20");
        return;
    }
    for (long i = 0; i < times; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "hello ");
    own->greeted += (uint64_t)times;
    text[used - 1] = 0;
    toolsd_ok_text(result, allocator, text);
}

static void count(void *state, const toolsd_context *context, size_t index, const toolsd_call *call,
                  toolsd_result *result, const toolsd_allocator *allocator) {
    struct state *own = state;
    char json[64];
    (void)context, (void)index, (void)call;
    snprintf(json, sizeof json, "{\"greeted\":%llu}", (unsigned long long)own->greeted);
    toolsd_ok_json(result, allocator, json);
}

static const toolsd_tool tools[] = {
    {"greet", "Say hello.",
     "{\"type\":\"object\",\"properties\":{\"times\":{\"type\":\"integer\",\"description\":\"How often.\"}},"
     "\"additionalProperties\":false}",
     0},
    {"count_greetings", "How often hello was said so far.", NULL, TOOLSD_IDEMPOTENT},
};
static const toolsd_handler handlers[] = {greet, count};

static int32_t invoke_batch(void *state, const toolsd_context *context, const toolsd_call *calls,
                            toolsd_result *results, size_t n, const toolsd_allocator *allocator) {
    return toolsd_in_order(handlers, state, context, calls, results, n, allocator);
}

static void deinit(void *state) {
    free(state);
}

static toolsd_source source = {TOOLSD_ABI, TOOLSD_TELLS, "greet", tools, 2, NULL, invoke_batch, deinit};

TOOLSD_EXPORT const toolsd_source *toolsd_source_entry(const toolsd_host *host) {
    source.state = calloc(1, sizeof(struct state));
    if (!source.state) {
        host->fail(host, "no memory");
        return NULL;
    }
    return &source;
}
