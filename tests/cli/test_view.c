/* The documents of trireme view: schedules are those of the simulator, rounds of collectives give
 * every rank what the operation promises, pieces cover every tensor, a program is that of explain,
 * and wrong addresses are refused in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collective/collective.h"
#include "schedule/schedule.h"

static char program[300]; /* beside this test */

/* What a command prints on both streams, on the heap. */
static char *output_of(int *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static char *output_of(int *code, const char *format, ...)
{
    static char command[60000];
    size_t num = 0, capacity = 1 << 16, length = (size_t)snprintf(command, 400, "%s ", program);
    char *text = malloc(capacity);
    va_list args;
    va_start(args, format);
    length += (size_t)vsnprintf(command + length, sizeof command - length, format, args);
    va_end(args);
    assert_true(length + 20 < sizeof command);
    strcat(command, " 2>&1 </dev/null");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(text);
    for (size_t got; (got = fread(text + num, 1, capacity - num - 1, pipe)) > 0;) {
        num += got;
        if (capacity - num < 2) {
            capacity *= 2;
            text = realloc(text, capacity);
            assert_non_null(text);
        }
    }
    text[num] = 0;
    int status = pclose(pipe);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
}

static json_t *parse(const char *text, const char *what)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s: %s: %.200s", what, why.text, text);
    return root;
}

static json_t *view(const char *settings, const char *address)
{
    int code;
    char *text = output_of(&code, "view %s --print '%s'", settings, address);
    if (code != 0)
        fail_msg("%s: %s", address, text);
    json_t *root = parse(text, address);
    free(text);
    return root;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("no text %s", key);
    return text;
}

static int64_t item(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

/* ---- schedules ---- */

/* Every member of one document is in the other, with the same value. */
static void check_within(const json_t *part, const json_t *whole, const char *what)
{
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)part, key, value)
    {
        const json_t *other = json_object_get(whole, key);
        if (strcmp(key, "title") == 0)
            continue;
        if (strcmp(key, "ranks") == 0) {
            assert_int_equal(json_array_size(value), json_array_size(other));
            json_t *rank;
            json_array_foreach(value, i, rank) check_within(rank, json_array_get(other, i), what);
        } else if (!json_equal(value, other)) {
            fail_msg("%s: %s differs", what, key);
        }
    }
}

/* What lives at most is what the simulator says, and in the end nothing does. Actions are in the
 * order of one lane. */
static void check_rank(const json_t *rank, const char *what)
{
    const json_t *live = json_object_get(rank, "live"), *actions = json_object_get(rank, "actions");
    const json_t *point, *action;
    int64_t most = 0, last = -1;
    double end = 0;
    size_t i;
    json_array_foreach(live, i, point)
    {
        last = item(point, 1);
        most = last > most ? last : most;
    }
    if (most != (int64_t)number_at(rank, "live_chunks") || last != 0)
        fail_msg("%s: rank %g has %lld chunks live", what, number_at(rank, "rank"),
                 (long long)most);
    json_array_foreach(actions, i, action)
    {
        double from = json_number_value(json_array_get(action, 3));
        double to = json_number_value(json_array_get(action, 4));
        assert_true(to >= from);
        end = to > end ? to : end;
    }
    if (end != number_at(rank, "end"))
        fail_msg("%s: rank %g ends at %g", what, number_at(rank, "rank"), end);
}

static int check_schedule(const char *name, int p, int m, const char *sim_costs,
                          const char *view_costs)
{
    char address[300];
    int code;
    char *text = output_of(&code, "sim --json --schedule %s --pp %d --microbatches %d %s", name, p,
                           m, sim_costs);
    snprintf(address, sizeof address, "/api/view/schedule?name=%s&p=%d&m=%d%s", name, p, m,
             view_costs);
    if (code != 0) { /* not for such sizes: both say so */
        free(text);
        text = output_of(&code, "view --print '%s'", address);
        assert_int_equal(code, 2);
        assert_non_null(strstr(text, "{\"error\":\""));
        free(text);
        return 0;
    }
    json_t *sim = parse(text, name), *doc = view("", address), *rank;
    size_t i;
    check_within(sim, doc, address);
    json_array_foreach(json_object_get(doc, "ranks"), i, rank) check_rank(rank, address);
    double sends = 0;
    json_array_foreach(json_object_get(doc, "ranks"), i, rank) sends += number_at(rank, "sends");
    assert_int_equal(json_array_size(json_object_get(doc, "messages")), (size_t)sends);
    json_decref(sim);
    json_decref(doc);
    free(text);
    return 1;
}

static void schedules(void **state)
{
    (void)state;
    int num = 0;
    for (size_t i = 0; tri_order_at(i); i++) {
        const char *name = tri_order_at(i)->name;
        num += check_schedule(name, 4, 8, "", "");
        num += check_schedule(name, 6, 18, "--cost F=1,I=1.5,W=0.5,comm=0.25,U=3",
                              "&F=1&I=1.5&W=0.5&send=0.25&U=3");
        num += check_schedule(name, 8, 16, "--cost FB=2.25,B=2.5", "&FB=2.25&B=2.5");
        num += check_schedule(name, 3, 7, "", "");
    }
    assert_true(num >= 40);
    json_t *list = view("", "/api/view/schedules"), *own;
    for (size_t i = 0; tri_order_at(i); i++)
        assert_string_equal(text_at(json_array_get(json_object_get(list, "schedules"), i), "name"),
                            tri_order_at(i)->name);
    json_decref(list);
    own = view("", "/api/view/schedule?csv=0F0,0F1,0B0,0B1|1F0,1B0,1F1,1B1&send=1");
    list = view("", "/api/view/schedule?csv=0F0,0B0,0F1,0B1|1F0,1B0,1F1,1B1&send=1");
    assert_true(number_at(own, "time") < number_at(list, "time"));
    json_decref(own);
    json_decref(list);
}

/* ---- collectives ---- */

enum { MOST_PIECES = 1024, MOST_RANKS = 16 };

/* Of each rank and piece, whose terms are in it; a piece that is no sum has the term of the rank
 * that gives it away. */
typedef uint32_t holding[MOST_RANKS][MOST_PIECES];

/* The terms that a rank has of a piece before, and must have after. */
static uint32_t promised(tri_coll coll, int n, int root, int rank, uint32_t piece, bool after)
{
    uint32_t all = (1u << n) - 1, own = 1u << rank, block = 1u << piece % 32;
    switch (coll) {
    case TRI_COLL_BROADCAST:
        return after || rank == root ? 1u << root : 0;
    case TRI_COLL_REDUCE:
        return !after ? own : rank == root ? all : 0;
    case TRI_COLL_ALL_REDUCE:
        return after ? all : own;
    case TRI_COLL_GATHER:
        return (after ? rank == root : (int)piece == rank) ? block : 0;
    case TRI_COLL_SCATTER:
        return (after ? (int)piece == rank : rank == root) ? 1u << root : 0;
    case TRI_COLL_ALL_GATHER:
        return after || (int)piece == rank ? block : 0;
    case TRI_COLL_REDUCE_SCATTER:
        return !after ? own : (int)piece == rank ? all : 0;
    case TRI_COLL_ALL_TO_ALL:
        return (int)(after ? piece % (unsigned)n : piece / (unsigned)n) == rank
                   ? 1u << piece / (unsigned)n
                   : 0;
    default:
        return 0;
    }
}

static void run_round(const json_t *round, holding has, const char *what)
{
    static holding before;
    const json_t *transfer;
    size_t i;
    memcpy(before, has, sizeof before);
    json_array_foreach(json_object_get(round, "transfers"), i, transfer)
    {
        int64_t from = item(transfer, 0), to = item(transfer, 1), first = item(transfer, 2);
        bool adds = json_is_true(json_array_get(transfer, 4));
        assert_true(from != to);
        for (int64_t p = first; p < first + item(transfer, 3); p++) {
            if (!before[from][p])
                fail_msg("%s: %d gives piece %d, which it has not", what, (int)from, (int)p);
            if (adds && (has[to][p] & before[from][p]))
                fail_msg("%s: a term is in piece %d of %d twice", what, (int)p, (int)to);
            has[to][p] = adds ? has[to][p] | before[from][p] : before[from][p];
        }
    }
}

static void check_lists(const json_t *doc, const char *key, tri_coll coll, int n, int root)
{
    const json_t *runs, *run;
    size_t r, i;
    int64_t pieces = (int64_t)number_at(doc, "pieces");
    json_array_foreach(json_object_get(doc, key), r, runs)
    {
        int64_t num = 0;
        for (int64_t p = 0; p < pieces; p++)
            num += promised(coll, n, root, (int)r, (uint32_t)p, strcmp(key, "after") == 0) != 0;
        json_array_foreach(runs, i, run)
        {
            num -= item(run, 1);
            for (int64_t p = item(run, 0); p < item(run, 0) + item(run, 1); p++)
                assert_true(
                    promised(coll, n, root, (int)r, (uint32_t)p, strcmp(key, "after") == 0) != 0);
        }
        assert_int_equal(num, 0);
    }
}

static void check_collective(const json_t *doc, tri_coll coll, int n, int root, const char *what)
{
    static holding has;
    const json_t *round;
    size_t i;
    double end = 0;
    uint32_t pieces = (uint32_t)number_at(doc, "pieces");
    assert_true(pieces <= MOST_PIECES);
    memset(has, 0, sizeof has);
    for (int r = 0; r < n; r++)
        for (uint32_t p = 0; p < pieces; p++)
            has[r][p] = promised(coll, n, root, r, p, false);
    json_array_foreach(json_object_get(doc, "rounds"), i, round)
    {
        run_round(round, has, what);
        assert_true(number_at(round, "end_seconds") >= number_at(round, "begin_seconds"));
        end = number_at(round, "end_seconds") > end ? number_at(round, "end_seconds") : end;
    }
    for (int r = 0; r < n; r++)
        for (uint32_t p = 0; p < pieces; p++) {
            uint32_t wanted = promised(coll, n, root, r, p, true);
            if (wanted && has[r][p] != wanted)
                fail_msg("%s: rank %d has %x of piece %u, not %x", what, r, has[r][p], p, wanted);
        }
    if (end > number_at(doc, "seconds") * (1 + 1e-12))
        fail_msg("%s: a round ends after everything has", what);
    check_lists(doc, "before", coll, n, root);
    check_lists(doc, "after", coll, n, root);
}

static void collectives(void **state)
{
    (void)state;
    static const int sizes[] = {3, 4, 7, 8, 16};
    int num = 0, refused = 0;
    for (size_t a = 0; tri_algorithm_at(a); a++)
        for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const tri_algorithm *algorithm = tri_algorithm_at(a);
                int n = sizes[s], code, root = (n - 1) * (coll % 2);
                tri_coll_shape shape = tri_shape_flat(n);
                char address[200];
                snprintf(address, sizeof address,
                         "/api/view/collective?operation=%s&algorithm=%s&ranks=%d&root=%d",
                         tri_coll_name((tri_coll)coll), algorithm->name, n, root);
                char *text = output_of(&code, "view --print '%s'", address);
                if (!tri_algorithm_supports(algorithm, (tri_coll)coll, &shape)) {
                    assert_int_equal(code, 2);
                    refused++;
                } else {
                    if (code != 0)
                        fail_msg("%s: %s", address, text);
                    json_t *doc = parse(text, address);
                    check_collective(doc, (tri_coll)coll, n, root, address);
                    json_decref(doc);
                    num++;
                }
                free(text);
            }
    assert_true(num > 120 && refused > 20);
}

/* ---- placements ---- */

/* How often ranks have each element of each term. */
static void count_pieces(const json_t *doc, int64_t elements, int *counts)
{
    const json_t *rank, *dims = json_object_get(doc, "dims");
    size_t r, num_dims = json_array_size(dims);
    bool divided = json_is_true(json_object_get(doc, "divided"));
    json_array_foreach(json_object_get(doc, "ranks"), r, rank)
    {
        const json_t *begin = json_object_get(rank, "begin"), *size = json_object_get(rank, "size");
        int64_t local = 1, counted = 0, first = 0, own;
        if (!begin)
            continue;
        own = (int64_t)number_at(rank, "elements");
        first = divided ? (int64_t)number_at(rank, "first") : 0;
        for (size_t d = 0; d < num_dims; d++)
            local *= item(size, d);
        for (int64_t i = 0; i < local; i++) {
            int64_t rest = i, at = 0, stride = 1;
            if (i < first || i >= first + own)
                continue;
            for (size_t d = num_dims; d-- > 0; rest /= item(size, d)) {
                at += (item(begin, d) + rest % item(size, d)) * stride;
                stride *= (int64_t)number_at(json_array_get(dims, d), "size");
            }
            assert_true(at < elements);
            counts[(int64_t)number_at(rank, "term") * elements + at]++;
            counted++;
        }
        assert_int_equal(counted, own);
    }
}

/* Every element of every term is on equally many ranks: on as many as there are copies. */
static void check_cover(const json_t *doc, const char *what)
{
    int64_t elements = (int64_t)number_at(doc, "elements");
    int64_t terms = (int64_t)number_at(doc, "terms");
    if (elements * terms > 1 << 19)
        return;
    int *counts = calloc((size_t)(elements * terms) + 1, sizeof *counts);
    assert_non_null(counts);
    count_pieces(doc, elements, counts);
    for (int64_t i = 0; i < elements * terms; i++)
        if (counts[i] == 0 || counts[i] != counts[0])
            fail_msg("%s: %s %s: element %lld of term %lld is there %d times, the first %d times",
                     what, text_at(doc, "value"), text_at(doc, "placement"),
                     (long long)(i % elements), (long long)(i / elements), counts[i], counts[0]);
    free(counts);
}

/* All values of a layout, in a few commands. */
static void check_layout(const char *recipe, const char *layout)
{
    char address[300];
    static char words[50000];
    int code, num = 0;
    snprintf(address, sizeof address, "/api/view/mesh?%s", layout);
    json_t *mesh = view(recipe, address), *values = json_object_get(mesh, "values");
    assert_true(json_is_false(json_object_get(mesh, "cut")));
    size_t total = json_array_size(values), i = 0;
    while (i < total) {
        size_t length = 0;
        for (; i < total && length < sizeof words - 1000; i++)
            length += (size_t)snprintf(words + length, sizeof words - length,
                                       " --print '/api/view/placement?value=%s&%s'",
                                       text_at(json_array_get(values, i), "value"), layout);
        char *text = output_of(&code, "view %s%s", recipe, words), *rest = text;
        if (code != 0)
            fail_msg("%s %s: %s", recipe, layout, text);
        for (char *line; (line = strsep(&rest, "\n")) && *line; num++) {
            json_t *doc = parse(line, layout);
            check_cover(doc, layout);
            json_decref(doc);
        }
        free(text);
    }
    assert_int_equal(num, total);
    assert_true(num > 100);
    json_decref(mesh);
}

static void placements(void **state)
{
    (void)state;
    check_layout("recipes/tiny.yaml", "dp=2&tp=2");
    check_layout("recipes/tiny.yaml", "dp=2&tp=2&zero=2&sp=1");
    check_layout("recipes/tiny.yaml", "dp=3&zero=3&batch=9");
    check_layout("recipes/tiny.yaml", "tp=3");
    check_layout("recipes/tiny.yaml", "cp=2&tp=2&zero=1");
    check_layout("recipes/tiny.yaml", "dp=2&pp=2&tp=2&microbatches=2&zero=1");
    check_layout("recipes/moe-tiny.yaml", "dp=4&ep=2&zero=2");
    check_layout("recipes/tiny.yaml --set precision.kind=bf16", "dp=2&tp=2&zero=1");
}

/* A rank's piece of a parameter is as large as what its program has. */
static void pieces_and_programs(void **state)
{
    (void)state;
    static const char layout[] = "tp=3&dp=2&zero=3&batch=8";
    static const char *const names[] = {"wte.weight", "h.1.mlp.c_fc.weight", "h.3.ln_2.bias"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char address[300];
        snprintf(address, sizeof address, "/api/view/placement?value=%s&%s", names[n], layout);
        json_t *doc = view("recipes/tiny.yaml", address), *rank;
        size_t r, s, i, o;
        int found = 0;
        json_array_foreach(json_object_get(doc, "ranks"), r, rank)
        {
            json_t *segment, *instruction, *operand, *own;
            snprintf(address, sizeof address, "/api/view/program?rank=%zu&%s", r, layout);
            own = view("recipes/tiny.yaml", address);
            json_array_foreach(json_object_get(own, "segments"), s, segment)
                json_array_foreach(json_object_get(segment, "instructions"), i, instruction)
                    json_array_foreach(json_object_get(instruction, "reads"), o, operand)
            {
                if (strcmp(text_at(operand, "name"), names[n]) != 0 ||
                    strcmp(text_at(operand, "space"), "param") != 0)
                    continue;
                if (number_at(operand, "bytes") != number_at(rank, "bytes"))
                    fail_msg("%s of rank %zu has %g bytes in its program and %g in the picture",
                             names[n], r, number_at(operand, "bytes"), number_at(rank, "bytes"));
                found++;
            }
            json_decref(own);
        }
        assert_true(found > 0);
        json_decref(doc);
    }
}

/* What a sum leaves in the gradient of a bucket is complete in a rank's own slice alone. */
static void slices_of_sums(void **state)
{
    (void)state;
    static const char address[] = "/api/view/placement?dp=2&zero=2&value=d.h.1.mlp.c_fc.weight";
    char after[200];
    snprintf(after, sizeof after, "%s~2", address);
    json_t *doc = view("recipes/tiny.yaml", address);
    assert_true(number_at(doc, "terms") == 2 && json_is_false(json_object_get(doc, "divided")));
    json_decref(doc);
    doc = view("recipes/tiny.yaml", after);
    const json_t *ranks = json_object_get(doc, "ranks");
    assert_true(number_at(doc, "terms") == 1 && json_is_true(json_object_get(doc, "divided")));
    assert_true(number_at(json_array_get(ranks, 0), "elements") +
                    number_at(json_array_get(ranks, 1), "elements") ==
                number_at(doc, "elements"));
    json_decref(doc);
}

/* ---- programs, and what is refused ---- */

static void programs(void **state)
{
    (void)state;
    int code;
    char *own = output_of(&code, "explain recipes/tiny.yaml --set layout.dp=2 --set layout.pp=2 "
                                 "--set layout.microbatches=4 --rank 3 --json");
    assert_int_equal(code, 0);
    char *text = output_of(&code, "view recipes/tiny.yaml --set layout.dp=2 --print "
                                  "'/api/view/program?rank=3&pp=2&microbatches=4'");
    assert_int_equal(code, 0);
    assert_string_equal(text, own);
    json_t *doc = parse(text, "program");
    assert_int_equal(json_array_size(json_object_get(doc, "timeline")),
                     (size_t)number_at(doc, "num_calls"));
    json_decref(doc);
    free(text);
    text = output_of(&code, "view --print '/api/view/program?recipe=tiny&rank=3&dp=2&pp=2&"
                            "microbatches=4'");
    assert_string_equal(text, own); /* a recipe of the list is the same as the file */
    free(text);
    free(own);
}

static const struct {
    const char *address, *says;
} refused[] = {
    {"/api/view/nothing", "there is no /api/view/nothing"},
    {"/api/view/schedule?name=1f1c", "there is no schedule"},
    {"/api/view/schedule?name=csv:/etc/passwd", "there is no schedule"},
    {"/api/view/schedule?name=file", "there is no schedule"},
    {"/api/view/schedule?p=65", "whole number from 1 to 64"},
    {"/api/view/schedule?p=-1", "whole number from 1 to 64"},
    {"/api/view/schedule?p=4x", "whole number from 1 to 64"},
    {"/api/view/schedule?m=257", "whole number from 1 to 256"},
    {"/api/view/schedule?m=99999999999999999999", "whole number from 1 to 256"},
    {"/api/view/schedule?name=interleaved&p=64&m=256&chunks=16", "too large for a picture"},
    {"/api/view/schedule?F=nan", "must be a number from 0 to"},
    {"/api/view/schedule?F=-1", "must be a number from 0 to"},
    {"/api/view/schedule?F=1e99", "must be a number from 0 to"},
    {"/api/view/schedule?color=red", "takes no"},
    {"/api/view/schedule?name=dualpipe&p=3", "even number of ranks"},
    {"/api/view/schedule?csv=0F0,0B0,7F0", "the table"},
    {"/api/view/schedule?csv=0F1000000,0B1000000", "the table"},
    {"/api/view/schedule?csv=0F0&name=1f1b", "leave name out"},
    {"/api/view/collective?operation=sum", "there is no operation"},
    {"/api/view/collective?algorithm=rings", "ring"},
    {"/api/view/collective?ranks=65", "whole number from 1 to 64"},
    {"/api/view/collective?operation=broadcast&ranks=4&root=4", "from 0 to 3"},
    {"/api/view/collective?bytes=-1", "must be a number"},
    {"/api/view/collective?bandwidth=0", "must be a number"},
    {"/api/view/collective?algorithm=torus2d:3x3&ranks=8", "torus2d"},
    {"/api/view/mesh?dp=65", "whole number from 1 to 64"},
    {"/api/view/mesh?dp=16&tp=8", "at most 64"},
    {"/api/view/mesh?recipe=../../etc/passwd", "there is no recipe"},
    {"/api/view/mesh?recipe=recipes/tiny.yaml", "there is no recipe"},
    {"/api/view/mesh?schedule=csv:/etc/passwd", "there is no schedule"},
    {"/api/view/mesh?tp=9", "layout.tp"},
    {"/api/view/placement?value=nothing", "there is no value"},
    {"/api/view/placement?value=wte.weight~9", "there is no value"},
    {"/api/view/placement", "there is no value"},
    {"/api/view/program?rank=2&dp=2", "whole number from 0 to 1"},
    {"/api/view/program?set=run.dir=x", "takes no"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int code;
        char *text = output_of(&code, "view recipes/tiny.yaml --print '%s'", refused[i].address);
        json_t *doc = parse(text, refused[i].address);
        const char *says = text_at(doc, "error");
        if (code != 2 || !strstr(says, refused[i].says))
            fail_msg("%s: exit code %d, \"%s\"; expected \"%s\"", refused[i].address, code, says,
                     refused[i].says);
        json_decref(doc);
        free(text);
    }
    static const char *const malformed[] = {"", "schedules", "/api/view/schedule?p=4&p=5",
                                            "/api/view/schedule?csv=%zz"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        int code;
        char *text = output_of(&code, "view --print '%s'", malformed[i]);
        assert_int_equal(code, 2);
        assert_non_null(strstr(text, "it is malformed"));
        free(text);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *slash = strrchr(argv[0], '/');
    snprintf(program, sizeof program, "%.*s/../trireme", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules),      cmocka_unit_test(collectives),
        cmocka_unit_test(placements),     cmocka_unit_test(pieces_and_programs),
        cmocka_unit_test(slices_of_sums), cmocka_unit_test(programs),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
