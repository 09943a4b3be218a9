/* Loading a large checkpoint into other layouts: a rank reads its own bytes, each once, in bounded
 * memory. The checkpoint is one of 8 billion parameters whose files are all holes. */
#include "small_models.h"

#include "ckpt/checkpoint.h"
#include "temp_dir.h"
#include "train/pieces.h"

#define LLAMA_8B                                                                                   \
    "run.device=null", "model.preset=llama3-8b", "train.batch=24", "data.seq_len=16",              \
        "precision.kind=bf16"

typedef struct planned {
    tr_settings *settings;
    tr_session *session;
    tri_pieces pieces;
} planned;

static planned plan_rank(int rank, const char *const *assignments)
{
    tr_error err = {0};
    planned p = {.settings = settings_of(NULL, assignments)};
    if (tri_api_compile_programs(p.settings, rank, 1 << TRI_PROGRAM_TRAIN, NULL, &p.session,
                                 &err) != TR_OK ||
        tri_pieces_list(&p.session->session, &p.pieces, &err) != TR_OK)
        fail_msg("%s", err.message);
    return p;
}

static void forget(planned *p)
{
    tri_pieces_free(&p->pieces);
    tr_session_destroy(p->session);
    tr_settings_destroy(p->settings);
}

/* What one rank would report; its file is made, without a byte in it. */
static void add_report(tri_manifest *report, const char *dir, int rank, const planned *p)
{
    char name[64], path[300];
    int64_t offset = 0;
    tri_manifest_init(report);
    snprintf(name, sizeof name, "rank-%d.safetensors", rank);
    tri_ckpt_file file = {.name = name};
    assert_true(tri_manifest_add_file(report, &file));
    for (size_t i = 0; i < p->pieces.num; i++) {
        tri_region share = tri_piece_share(&p->pieces.piece[i]);
        tri_ckpt_shard shard = {.offset = offset, .region = share};
        if (share.count == 0)
            continue;
        assert_true(tri_manifest_add_tensor(report, p->pieces.piece[i].name,
                                            p->pieces.piece[i].kind, share.num_dims, share.dim));
        assert_true(tri_manifest_add_shard(report, &shard));
        offset += share.count * 4;
    }
    report->files[0].bytes = offset;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(put_file(path, "", 0), 0);
    assert_int_equal(truncate(path, (off_t)offset), 0);
}

enum { RANKS = 16 };

/* Written by tp 4 x dp 4 with zero 3. Returns the bytes of the largest and of all files. */
static int64_t make_checkpoint(const char *dir, int64_t *largest)
{
    tri_manifest reports[RANKS], whole;
    const tri_manifest *list[RANKS];
    int64_t total = 0;
    tr_error err = {0};
    *largest = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        planned p = plan_rank(rank, SET(LLAMA_8B, "layout.tp=4", "layout.dp=4", "layout.zero=3"));
        add_report(&reports[rank], dir, rank, &p);
        list[rank] = &reports[rank];
        int64_t bytes = reports[rank].files[0].bytes;
        *largest = bytes > *largest ? bytes : *largest;
        total += bytes;
        forget(&p);
    }
    tri_manifest_init(&whole);
    assert_int_equal(tri_manifest_merge(&whole, list, RANKS, &err), TR_OK);
    tri_text text;
    tri_text_init(&text);
    tri_manifest_print(&whole, &text);
    char path[300];
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    assert_int_equal(put_file(path, text.chars, text.length), 0);
    tri_text_fini(&text);
    tri_manifest_fini(&whole);
    for (int rank = 0; rank < RANKS; rank++)
        tri_manifest_fini(&reports[rank]);
    return total;
}

/* Bytes that the ranks of a layout would read, 16-bit copies apart. */
static double bytes_of(const char *dir, int num_ranks, const char *const *assignments)
{
    double sum = 0;
    tri_checkpoint ckpt;
    tr_error err = {0};
    if (tri_checkpoint_open(&ckpt, dir, &err) != TR_OK)
        fail_msg("%s", err.message);
    ckpt.counts_only = true;
    for (int rank = 0; rank < num_ranks; rank++) {
        planned p = plan_rank(rank, assignments);
        for (size_t i = 0; i < p.pieces.num; i++) {
            const tri_piece *piece = &p.pieces.piece[i];
            ckpt.bytes_read = 0;
            if (tri_checkpoint_read(&ckpt, piece->name, &piece->region, NULL, &err) != TR_OK)
                fail_msg("%s", err.message);
            /* Every element of the piece once. */
            assert_int_equal(ckpt.bytes_read, piece->region.count * 4);
            sum += piece->dtype == TRI_F32 ? (double)ckpt.bytes_read : 0;
        }
        forget(&p);
    }
    tri_checkpoint_close(&ckpt);
    return sum;
}

static int64_t resident_peak(void)
{
    char line[200];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %lld", &kib);
    if (file)
        fclose(file);
    return (int64_t)kib * 1024;
}

static void each_byte_once_in_bounded_memory(void **state)
{
    temp_dir *temp = *state;
    const char *dir = temp->path;
    int64_t largest, total = make_checkpoint(dir, &largest);
    assert_true((double)total > 96e9); /* three numbers of 4 bytes, 8 billion times */
    assert_true((double)largest < 1.001 * (double)total / RANKS);
    /* Where all is divided, the ranks together read the checkpoint once; gains of norms are on
     * every rank of a tp group. */
    double all = (double)total;
    assert_true(bytes_of(dir, 5, SET(LLAMA_8B, "layout.dp=5", "layout.zero=3")) == all);
    double cut = bytes_of(dir, 6, SET(LLAMA_8B, "layout.tp=2", "layout.dp=3", "layout.zero=3"));
    assert_true(cut > all && cut < 1.0001 * all);
    assert_true(bytes_of(dir, 2, SET(LLAMA_8B, "layout.dp=2")) == 2 * all);
    /* For real, a layer of it: what is resident stays far below what is read. */
    planned p = plan_rank(5, SET(LLAMA_8B, "layout.tp=8", "layout.sp=true"));
    tri_checkpoint ckpt;
    tr_error err = {0};
    enum { CHUNK = 1 << 20 };
    float *room = malloc(CHUNK * sizeof *room);
    assert_int_equal(tri_checkpoint_open(&ckpt, dir, &err), TR_OK);
    int64_t before = resident_peak();
    for (size_t i = 0; i < p.pieces.num; i++) {
        tri_region part = p.pieces.piece[i].region;
        if (!strstr(p.pieces.piece[i].name, "layers.3.mlp"))
            continue;
        for (int64_t at = 0, all = part.count; at < all; at += part.count) {
            part.first = p.pieces.piece[i].region.first + at;
            part.count = all - at < CHUNK ? all - at : CHUNK;
            assert_int_equal(tri_checkpoint_read(&ckpt, p.pieces.piece[i].name, &part, room, &err),
                             TR_OK);
        }
    }
    assert_true(ckpt.bytes_read > (uint64_t)200 << 20);
    assert_true(resident_peak() - before < (int64_t)64 << 20);
    tri_checkpoint_close(&ckpt);
    free(room);
    forget(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_byte_once_in_bounded_memory)};
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
