/* What fifty layouts need and do, compared with tests/golden/totals.txt: bytes of every space,
 * arithmetic, messages, and hashes of everything that has an address, for all ranks. A change of
 * the core that says that nothing moved is held to it.
 *
 *     TRIREME_UPDATE_GOLDEN=1 build/tests/test_totals     # writes the totals anew
 *     TRIREME_TOTALS=DIR build/tests/test_totals          # what is hashed, as files to compare
 *
 * The file is its own list: a line "train SETTING ..." (or generate, or gpu, see below) is a
 * layout, and the indented lines after it are its totals. */
#include "small_models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fake_gpu.h"
#include "program_digest.h"

#define TOTALS "tests/golden/totals.txt"
enum { MAX_RANKS = 64, MIN_LAYOUTS = 50 };

typedef struct rank_programs {
    tr_settings *settings;
    tri_session session;
} rank_programs;

/* As large as some device might ask for. None is asked: processors differ. */
static uint64_t some_scratch(const void *context, const tri_program *program,
                             const tri_instr *instr)
{
    (void)context;
    (void)program;
    return instr->op == TRI_OP_ATTENTION_GRAD ? 4160 : instr->op == TRI_OP_EMBED_GRAD ? 1088 : 0;
}

/* The programs as a GPU has them: everything is fused that can be. */
static tr_status compile_fused(tri_session *session, tr_error *err)
{
    tri_compile_config config = session->config.compile;
    config.fusions = (tri_fusions){.bias = true,
                                   .bias_gelu = true,
                                   .gelu_grad = true,
                                   .add = true,
                                   .residual = true,
                                   .norm_grads = true,
                                   .cross_entropy = true,
                                   .amax = true,
                                   .adam_copy = true};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        if (!tri_session_has(session, p))
            continue;
        tri_batch_shape shape = tri_session_batch_shape(session, p);
        tri_program_fini(&session->programs[p]);
        session->programs[p] = (tri_program){0};
        TRI_TRY(tri_compile(&config, &session->params, tri_session_mode(p), &shape,
                            &session->programs[p], NULL, err));
    }
    return TR_OK;
}

/* Layouts of `gpu` are compiled as for one: messages are ordered for lanes, gradients lie among the
 * activations, some kernels have scratch, and there are the operators that only it has. */
static tr_status compile_rank(rank_programs *r, const char *kind, int rank, tr_error *err)
{
    tri_session_config config;
    bool gpu = strcmp(kind, "gpu") == 0;
    TRI_TRY(tri_settings_complete(r->settings, err));
    TRI_TRY(tri_session_config_from(r->settings, &config, err));
    config.compile.rank = rank;
    config.programs = strcmp(kind, "generate") == 0 ? TRI_PROGRAMS_GENERATE : TRI_PROGRAMS_TRAIN;
    if (gpu) {
        config.compile.memory = (tri_memory_needs){.scratch = some_scratch};
        config.by_nccl = true;
        tri_session_order_messages(&config, &fake_gpu_def);
    }
    TRI_TRY(tri_session_compile(&r->session, &config, err));
    return gpu ? compile_fused(&r->session, err) : TR_OK;
}

/* "train SETTING ..." */
static tr_status set_all(rank_programs *r, const char *line, tr_error *err)
{
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", line);
    TRI_TRY(tr_settings_create(&r->settings, err));
    TRI_TRY(tr_settings_set(r->settings, "run.device=null", err));
    TRI_TRY(tr_settings_set(r->settings, "run.threads=1", err));
    strtok_r(copy, " ", &save);
    for (char *word; (word = strtok_r(NULL, " ", &save));)
        TRI_TRY(tr_settings_set(r->settings, word, err));
    return TR_OK;
}

static uint64_t hash_of(const tri_text *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < text->length; i++)
        hash = (hash ^ (unsigned char)text->chars[i]) * 0x100000001b3u;
    return hash;
}

/* --- One layout ----------------------------------------------------------------------------- */

typedef struct layout {
    tri_text parts[DIGEST_PARTS]; /* of all ranks */
    tri_text totals[MAX_RANKS];   /* of each */
    int num_ranks;
} layout;

static void add_rank(layout *l, rank_programs *r, int rank)
{
    static const char *const names[TRI_NUM_PROGRAMS] = {"train", "eval", "predict", "prefill",
                                                        "decode"};
    tri_text_init(&l->totals[rank]);
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        if (!tri_session_has(&r->session, p))
            continue;
        for (int part = 0; part < DIGEST_PARTS; part++)
            tri_text_add(&l->parts[part], "rank %d %s\n", rank, names[p]);
        digest_program(&r->session.programs[p], l->parts);
        if (p == TRI_PROGRAM_EVAL || p == TRI_PROGRAM_PREDICT)
            continue; /* parts of training: the hashes have them */
        tri_text_add(&l->totals[rank], "   %s:", names[p]);
        digest_totals(&r->session.programs[p], &l->totals[rank]);
    }
    assert_false(l->totals[rank].failed);
}

static void compile_layout(layout *l, const char *line)
{
    char kind[16] = "";
    sscanf(line, "%15s", kind);
    *l = (layout){.num_ranks = 1};
    for (int part = 0; part < DIGEST_PARTS; part++)
        tri_text_init(&l->parts[part]);
    for (int rank = 0; rank < l->num_ranks; rank++) {
        rank_programs r = {0};
        tr_error err = {0};
        tr_status status = set_all(&r, line, &err);
        if (status == TR_OK)
            status = compile_rank(&r, kind, rank, &err);
        if (status != TR_OK)
            fail_msg("%s: %s\n  %s", tr_status_name(status), err.message, line);
        l->num_ranks = tri_mesh_ranks(&r.session.config.compile.mesh);
        assert_in_range(l->num_ranks, 1, MAX_RANKS);
        add_rank(l, &r, rank);
        tri_session_fini(&r.session);
        tr_settings_destroy(r.settings);
    }
    for (int part = 0; part < DIGEST_PARTS; part++)
        assert_false(l->parts[part].failed);
}

/* Ranks whose totals are equal share a block. */
static void add_layout(const layout *l, const char *line, tri_text *text)
{
    bool told[MAX_RANKS] = {0};
    tri_text_add(text, "%s\n", line);
    for (int rank = 0; rank < l->num_ranks; rank++) {
        if (told[rank])
            continue;
        tri_text_add(text, "  ranks");
        for (int other = rank; other < l->num_ranks; other++) {
            if (strcmp(l->totals[rank].chars, l->totals[other].chars) != 0)
                continue;
            tri_text_add(text, " %d", other);
            told[other] = true;
        }
        tri_text_add(text, "\n%s", l->totals[rank].chars);
    }
    tri_text_add(text, "  hashes");
    for (int part = 0; part < DIGEST_PARTS; part++)
        tri_text_add(text, " %s %016" PRIx64, digest_part_names[part], hash_of(&l->parts[part]));
    tri_text_add(text, "\n");
}

/* What was hashed, in DIR/NUMBER-PART.txt. */
static void write_parts(const layout *l, const char *line, const char *dir, int number)
{
    assert_true(mkdir(dir, 0777) == 0 || errno == EEXIST);
    for (int part = 0; part < DIGEST_PARTS; part++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%02d-%s.txt", dir, number, digest_part_names[part]);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fprintf(file, "%s\n%s", line, l->parts[part].chars);
        assert_int_equal(fclose(file), 0);
    }
}

static void layout_fini(layout *l)
{
    for (int part = 0; part < DIGEST_PARTS; part++)
        tri_text_fini(&l->parts[part]);
    for (int rank = 0; rank < l->num_ranks; rank++)
        tri_text_fini(&l->totals[rank]);
}

/* --- The file ------------------------------------------------------------------------------- */

static void read_totals(tri_text *text)
{
    char line[4096];
    FILE *file = fopen(TOTALS, "rb");
    if (!file)
        fail_msg(TOTALS " is missing");
    tri_text_init(text);
    while (fgets(line, sizeof line, file))
        tri_text_add(text, "%s", line);
    fclose(file);
    assert_false(text->failed);
}

static void write_totals(const tri_text *text)
{
    FILE *file = fopen(TOTALS, "wb");
    assert_non_null(file);
    fputs(text->chars, file);
    assert_int_equal(fclose(file), 0);
}

/* Says the first line that differs. */
static void compare(const char *was, const char *is)
{
    char layout_line[1024] = "";
    for (int number = 1; *was || *is; number++) {
        size_t a = strcspn(was, "\n"), b = strcspn(is, "\n");
        if (a > 0 && *was != ' ' && *was != '#')
            snprintf(layout_line, sizeof layout_line, "%.*s", (int)a, was);
        if (a != b || memcmp(was, is, a) != 0)
            fail_msg(TOTALS ":%d\n  was %.*s\n  is  %.*s\n  in the layout %s\n"
                            "(tests/golden/README.md says how to see what changed, and how to "
                            "accept it)",
                     number, (int)a, was, (int)b, is, layout_line);
        was += a + (was[a] == '\n');
        is += b + (is[b] == '\n');
    }
}

static void nothing_moved(void **state)
{
    (void)state;
    tri_text was, is;
    int num = 0;
    const char *dir = getenv("TRIREME_TOTALS"), *update = getenv("TRIREME_UPDATE_GOLDEN");
    read_totals(&was);
    tri_text_init(&is);
    for (const char *at = was.chars; *at;) {
        size_t length = strcspn(at, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
        if (line[0] == '#' || line[0] == 0)
            tri_text_add(&is, "%s\n", line);
        if (line[0] == '#' || line[0] == 0 || line[0] == ' ')
            continue;
        assert_true(length < sizeof line - 1);
        layout l;
        compile_layout(&l, line);
        add_layout(&l, line, &is);
        if (dir && *dir)
            write_parts(&l, line, dir, num);
        layout_fini(&l);
        num++;
    }
    assert_false(is.failed);
    assert_true(num >= MIN_LAYOUTS);
    if (update && strcmp(update, "1") == 0)
        write_totals(&is);
    else
        compare(was.chars, is.chars);
    print_message("%d layouts\n", num);
    tri_text_fini(&was);
    tri_text_fini(&is);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
