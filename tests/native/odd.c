/* Every way in which native code goes wrong, and what it tries to reach. A tool a way; `size` and `text` steer it. */
#define _GNU_SOURCE
#include "toolsd_source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HANDLER(name)                                                                                                 \
    static void name(void *state, const toolsd_context *context, size_t index, const toolsd_call *call,               \
                     toolsd_result *result, const toolsd_allocator *allocator)
#define UNUSED (void)state, (void)context, (void)index, (void)call, (void)result, (void)allocator

static int deep(int n) {
    volatile char room[4096];
    room[0] = (char)n;
    return deep(n + 1) + room[0];
}

static void nap(void) {
    struct timespec ten = {0, 10 * 1000 * 1000};
    nanosleep(&ten, NULL);
}

/* What is written under "key": up to the next quote, or a number's digits. */
static const char *value(const toolsd_call *call, const char *key) {
    static char text[4096];
    const char *at = strstr(call->arguments.data, key);
    size_t n = 0;
    at = at ? strchr(at + strlen(key) + 1, ':') + 1 : "";
    at += *at == '"';
    while (at[n] && !strchr("\",}", at[n]) && n < sizeof text - 1)
        n++;
    memcpy(text, at, n);
    text[n] = 0;
    return text;
}

static void told(toolsd_result *result, const toolsd_allocator *allocator, long answer) {
    char text[64];
    snprintf(text, sizeof text, "%s", answer < 0 ? strerrorname_np(errno) : "it worked");
    toolsd_ok_text(result, allocator, text);
}

HANDLER(segfault) {
    UNUSED;
    fprintf(stderr, "about to write to address 0\n");
    *(volatile int *)0 = 1;
}
HANDLER(abort_it) {
    UNUSED;
    fprintf(stderr, "assertion of the author failed\n");
    abort();
}
HANDLER(double_free) {
    UNUSED;
    char *volatile memory = malloc(64);
    free(memory);
    free(memory);
}
HANDLER(overflow) {
    UNUSED;
    deep(0);
}
HANDLER(leave) {
    UNUSED;
    exit(7);
}
HANDLER(spin) {
    UNUSED;
    context->progress(context, index, 1, 0, "spinning");
    for (;;)
        nap();
}
HANDLER(cooperate) {
    UNUSED;
    context->progress(context, index, 1, 0, "waiting");
    while (!context->cancelled(context))
        nap();
}
HANDLER(until_deadline) {
    UNUSED;
    struct timespec now;
    do {
        nap();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec * 1000000000LL + now.tv_nsec < context->deadline - 1000000000LL);
    toolsd_ok_text(result, allocator, context->deadline == TOOLSD_NO_DEADLINE ? "none" : "in time");
}
HANDLER(flood) {
    UNUSED;
    for (int i = 0; i < 100000; i++)
        puts("a line that a tool should not print, again and again");
    toolsd_ok_text(result, allocator, "printed");
}
HANDLER(large) {
    UNUSED;
    result->size = strtoull(value(call, "size"), NULL, 10);
    result->data = allocator->allocate(result->size);
    result->kind = TOOLSD_TEXT;
    if (result->data)
        memset(result->data, 'x', result->size);
}
HANDLER(echo) {
    UNUSED;
    toolsd_fill(result, allocator, TOOLSD_JSON, call->arguments.data, call->arguments.size);
}
HANDLER(speak) {
    UNUSED;
    context->progress(context, index, 1, 2, "half");
    context->write(context, index, "piece", 5);
    context->log(context, index, TOOLSD_WARNING, "careful");
    toolsd_ok_text(result, allocator, call->id.data ? call->id.data : "no id");
}
HANDLER(picture) {
    UNUSED;
    toolsd_fill(result, allocator, TOOLSD_BYTES, "\x89PNG\0data", 9);
    result->mime = "image/png";
}
HANDLER(no_utf8) {
    UNUSED;
    toolsd_fill(result, allocator, TOOLSD_TEXT, "a\xff", 2);
}
HANDLER(no_json) {
    UNUSED;
    toolsd_ok_json(result, allocator, "{\"a\": NaN}");
}
HANDLER(no_kind) {
    UNUSED;
    result->kind = 77;
}
HANDLER(empty) {
    UNUSED;
}
HANDLER(twice) {
    UNUSED;
    toolsd_ok_text(result, allocator, "one");
    context->finished(context, index);
    toolsd_ok_text(result, allocator, "two");
}
HANDLER(nowhere) {
    UNUSED;
    toolsd_ok_text(result, allocator, "fine");
    context->finished(context, 4711);
}
HANDLER(fail_batch) {
    UNUSED;
    context->fail(context, "the licence server is gone");
    toolsd_ok_text(result, allocator, "never seen");
}

/* --- what confinement must refuse --- */

HANDLER(read_file) {
    UNUSED;
    told(result, allocator, open(value(call, "text"), O_RDONLY));
}
HANDLER(read_by_syscall) {
    UNUSED;
    told(result, allocator, syscall(SYS_openat, AT_FDCWD, value(call, "text"), O_RDONLY));
}
HANDLER(open_socket) {
    UNUSED;
    told(result, allocator, syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
}
HANDLER(connect_unix) {
    UNUSED;
    told(result, allocator, socket(AF_UNIX, SOCK_STREAM, 0));
}
HANDLER(trace_parent) {
    UNUSED;
    told(result, allocator, syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, getppid(), 0, 0));
}
HANDLER(kill_parent) {
    UNUSED;
    told(result, allocator, kill(getppid(), SIGTERM));
}
HANDLER(run_program) {
    UNUSED;
    char *const nothing[] = {NULL};
    told(result, allocator, execve("/bin/true", nothing, nothing));
}
HANDLER(fork_it) {
    UNUSED;
    told(result, allocator, fork());
}
HANDLER(io_ring) {
    UNUSED;
    told(result, allocator, syscall(425 /* io_uring_setup */, 1, NULL));
}
HANDLER(write_file) {
    UNUSED;
    told(result, allocator, open(value(call, "text"), O_WRONLY));
}
HANDLER(read_environment) {
    UNUSED;
    const char *secret = getenv("A_SECRET_OF_THE_DAEMON");
    toolsd_ok_text(result, allocator, secret ? secret : "not there");
}

#define ANY "{\"type\":\"object\",\"properties\":{\"size\":{\"type\":\"integer\",\"minimum\":0},\"text\":{\"type\":\"string\"}}}"
#define EACH(tool)                                                                                                    \
    tool(segfault) tool(abort_it) tool(double_free) tool(overflow) tool(leave) tool(spin) tool(cooperate)             \
        tool(until_deadline) tool(flood) tool(large) tool(echo) tool(speak) tool(picture) tool(no_utf8)               \
        tool(no_json) tool(no_kind) tool(empty) tool(twice) tool(nowhere) tool(fail_batch) tool(read_file)            \
        tool(read_by_syscall) tool(open_socket) tool(connect_unix) tool(trace_parent) tool(kill_parent)               \
        tool(run_program) tool(fork_it) tool(io_ring) tool(write_file) tool(read_environment)
#define DECLARED(name) {#name, "Odd.", ANY, 0},
#define LISTED(name) name,

static const toolsd_tool tools[] = {EACH(DECLARED)};
static const toolsd_handler handlers[] = {EACH(LISTED)};

static int32_t invoke_batch(void *state, const toolsd_context *context, const toolsd_call *calls,
                            toolsd_result *results, size_t n, const toolsd_allocator *allocator) {
    toolsd_in_order(handlers, state, context, calls, results, n, allocator);
    return strcmp(calls[0].tool.data, "fail_batch") ? 0 : 3;
}

static void deinit(void *state) {
    (void)state;
    fprintf(stderr, "let go of everything\n");
}

static const toolsd_source source = {
    TOOLSD_ABI, TOOLSD_TELLS, "odd", tools, sizeof tools / sizeof *tools, NULL, invoke_batch, deinit,
};

TOOLSD_EXPORT const toolsd_source *toolsd_source_entry(const toolsd_host *host) {
    (void)host;
    return &source;
}
