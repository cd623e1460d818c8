// Times ggml's graph allocator on the planning graphs, for side by side with `hexloom`'s planner.
// Reads the text form of one graph on standard input (see host/src/plan/text.rs); see README.md for how to run it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#define MAX_TENSORS 65536
static struct { char name[64]; struct ggml_tensor *t; } named[MAX_TENSORS];
static int n_named;

static struct ggml_tensor *find(const char *name) {
    for (int i = n_named - 1; i >= 0; i--)
        if (!strcmp(named[i].name, name)) return named[i].t;
    fprintf(stderr, "unknown tensor %s\n", name);
    exit(1);
}

static enum ggml_op op_named(const char *name) {
    for (int op = 0; op < GGML_OP_COUNT; op++)
        if (!strcmp(ggml_op_name((enum ggml_op)op), name)) return (enum ggml_op)op;
    return GGML_OP_CUSTOM;  // never in place, like the ops it stands for
}

static enum ggml_type type_named(const char *name) {
    if (!strcmp(name, "f16")) return GGML_TYPE_F16;
    if (!strcmp(name, "i32")) return GGML_TYPE_I32;
    if (!strcmp(name, "i64")) return GGML_TYPE_I64;
    if (!strcmp(name, "i8")) return GGML_TYPE_I8;
    return GGML_TYPE_F32;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 201;
    struct ggml_init_params params = { (size_t)512 << 20, NULL, true };
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, MAX_TENSORS, false);
    static char line[1 << 16], sources[1 << 15];
    while (fgets(line, sizeof line, stdin)) {
        char name[64], op[64], type[8], flags[8], view_of[64];
        long long ne[4];
        size_t offset;
        if (sscanf(line, "T %63s %63s %7s %lld %lld %lld %lld %7s %63s %zu %32767s", name, op, type, &ne[0], &ne[1],
                   &ne[2], &ne[3], flags, view_of, &offset, sources) != 11) continue;
        int64_t extents[4] = { ne[0], ne[1], ne[2], ne[3] };
        struct ggml_tensor *t = ggml_new_tensor(ctx, type_named(type), 4, extents);
        t->op = strcmp(op, "NONE") ? op_named(op) : GGML_OP_NONE;
        if (strchr(flags, 'W')) t->data = (void *)0x1000;
        if (strchr(flags, 'I')) ggml_set_input(t);
        if (strchr(flags, 'O')) ggml_set_output(t);
        if (strcmp(view_of, "-")) {
            struct ggml_tensor *of = find(view_of);
            t->view_src = of->view_src ? of->view_src : of;
            t->view_offs = offset + of->view_offs;
        }
        int n = 0;
        if (strcmp(sources, "-"))
            for (char *s = strtok(sources, ","); s; s = strtok(NULL, ",")) t->src[n++] = find(s);
        snprintf(named[n_named].name, sizeof named[0].name, "%s", name);
        named[n_named++].t = t;
        if (t->op != GGML_OP_NONE) ggml_build_forward_expand(graph, t);
    }
    int nodes = ggml_graph_n_nodes(graph);
    ggml_gallocr_t alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    double *plan = malloc(sizeof(double) * rounds), *replay = malloc(sizeof(double) * rounds);
    for (int i = 0; i < rounds; i++) {
        double start = now();
        if (!ggml_gallocr_reserve(alloc, graph)) return 1;
        plan[i] = (now() - start) / nodes;
    }
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < n_named; k++)
            if (named[k].t->data != (void *)0x1000) named[k].t->data = NULL, named[k].t->buffer = NULL;
        double start = now();
        if (!ggml_gallocr_alloc_graph(alloc, graph)) return 1;
        replay[i] = (now() - start) / nodes;
    }
    qsort(plan, rounds, sizeof(double), ascending);
    qsort(replay, rounds, sizeof(double), ascending);
    printf("nodes %d bytes %zu plan best %.1f median %.1f replay best %.1f median %.1f ns/node\n", nodes,
           ggml_gallocr_get_buffer_size(alloc, 0), plan[0], plan[rounds / 2], replay[0], replay[rounds / 2]);
    return 0;
}
