/* The peer of `trireme bench comm`: the same collectives by MPI's own algorithms, timed the same
 * way (see src/cli/bench/bench_comm_measure.c), printed as the same JSON lines.
 *
 *     mpicc -O2 -o mpi_collectives bench/peers/mpi_collectives.c
 *     mpirun -n 2 ./mpi_collectives all_reduce 1024 32768 ...
 *
 * A size counts as in nccl-tests: the vector of an all_reduce; all blocks together in all_gather
 * and reduce_scatter; one rank's send vector in all_to_all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 41, FEWEST_SAMPLES = 5 };

static const double sample_seconds = 0.004, row_seconds = 0.4;

typedef struct bench {
    const char *op;
    int rank, size;
    float *send, *recv;
    int count, block;       /* elements: of the vector, of one rank's part of it */
    int num_send, num_recv; /* elements in the two vectors */
} bench;

static void call(const bench *b)
{
    MPI_Comm world = MPI_COMM_WORLD;
    if (strcmp(b->op, "all_reduce") == 0)
        MPI_Allreduce(b->send, b->recv, b->count, MPI_FLOAT, MPI_SUM, world);
    else if (strcmp(b->op, "all_gather") == 0)
        MPI_Allgather(b->send, b->block, MPI_FLOAT, b->recv, b->block, MPI_FLOAT, world);
    else if (strcmp(b->op, "reduce_scatter") == 0)
        MPI_Reduce_scatter_block(b->send, b->recv, b->block, MPI_FLOAT, MPI_SUM, world);
    else
        MPI_Alltoall(b->send, b->block, MPI_FLOAT, b->recv, b->block, MPI_FLOAT, world);
}

static double sample(const bench *b, int num_calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), most;
    for (int i = 0; i < num_calls; i++)
        call(b);
    double mean = (MPI_Wtime() - begin) / num_calls;
    MPI_Allreduce(&mean, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* Senders hold rank + 1 everywhere. */
static long count_wrong(const bench *b)
{
    int reduces = strcmp(b->op, "all_reduce") == 0 || strcmp(b->op, "reduce_scatter") == 0;
    long wrong = 0, all;
    for (int i = 0; i < b->num_recv; i++) {
        int expected = reduces ? b->size * (b->size + 1) / 2 : i / b->block + 1;
        wrong += b->recv[i] != (float)expected;
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const bench *b, double *samples, int num_samples, int num_calls, long wrong)
{
    int all_reduce = strcmp(b->op, "all_reduce") == 0;
    long bytes = 4L * (all_reduce ? b->count : b->block * b->size);
    qsort(samples, (size_t)num_samples, sizeof *samples, ascending);
    double seconds = samples[num_samples / 2], bandwidth = (double)bytes / seconds * 1e-9;
    double factor = (all_reduce ? 2.0 : 1.0) * (b->size - 1) / b->size;
    if (b->rank != 0)
        return;
    printf("{\"op\": \"%s\", \"algorithm\": \"mpi\", \"ranks\": %d, \"bytes\": %ld, "
           "\"time_us\": %.3f, \"min_us\": %.3f, \"max_us\": %.3f, \"algbw_gb_s\": %.4f, "
           "\"busbw_gb_s\": %.4f, \"wrong\": %ld, \"samples\": %d, \"calls\": %d}\n",
           b->op, b->size, bytes, seconds * 1e6, samples[0] * 1e6, samples[num_samples - 1] * 1e6,
           bandwidth, bandwidth * factor, wrong, num_samples, num_calls);
    fflush(stdout);
}

static void measure(bench *b)
{
    double samples[MOST_SAMPLES];
    for (int i = 0; i < b->num_send; i++)
        b->send[i] = (float)(b->rank + 1);
    memset(b->recv, 0xff, (size_t)b->num_recv * sizeof(float));
    call(b);
    long wrong = count_wrong(b);
    double guess = sample(b, 1);
    for (int i = 0; i < 3 && guess < row_seconds / 10; i++) {
        double seconds = sample(b, guess < sample_seconds / 4 ? 8 : 1);
        guess = seconds < guess ? seconds : guess;
    }
    double calls = sample_seconds / guess;
    int num_calls = calls < 1 ? 1 : (calls > 2000 ? 2000 : (int)calls);
    double num = row_seconds / (guess * num_calls);
    int num_samples =
        num < FEWEST_SAMPLES ? FEWEST_SAMPLES : (num > MOST_SAMPLES ? MOST_SAMPLES : (int)num);
    for (int i = 0; i < num_samples; i++)
        samples[i] = sample(b, num_calls);
    print_row(b, samples, num_samples, num_calls, wrong);
}

static float *allocate(int count)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, (size_t)count * sizeof(float) + 64) != 0) {
        fprintf(stderr, "mpi_collectives: no memory for %d elements\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

int main(int argc, char **argv)
{
    static const char *const ops[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
    bench b = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.size);
    for (int k = 0; k < 4; k++)
        if (argc > 1 && strcmp(argv[1], ops[k]) == 0)
            b.op = ops[k];
    if (!b.op || argc < 3) {
        if (b.rank == 0)
            fprintf(stderr, "mpi_collectives all_reduce|all_gather|reduce_scatter|all_to_all "
                            "BYTES ...\n");
        MPI_Finalize();
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        b.count = (int)(atol(argv[i]) / 4);
        b.block = b.count / b.size;
        b.num_send = strcmp(b.op, "all_gather") == 0 ? b.block : b.count;
        b.num_recv = strcmp(b.op, "reduce_scatter") == 0 ? b.block : b.count;
        if (strcmp(b.op, "all_reduce") != 0 && b.num_recv == b.count)
            b.num_recv = b.block * b.size;
        b.send = allocate(b.num_send);
        b.recv = allocate(b.num_recv);
        measure(&b);
        free(b.send);
        free(b.recv);
    }
    MPI_Finalize();
    return 0;
}
