/* Latency, bandwidth and all-to-all between ranks, with checked data. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 20)

static int rank, size;

static unsigned char pattern(int from, int to, int round, int at)
{
    return from * 101 + to * 37 + round * 13 + at * 7 + (at >> 8) * 3;
}

static void fill(unsigned char *buffer, int len, int from, int to, int round)
{
    for (int at = 0; at < len; at++)
        buffer[at] = pattern(from, to, round, at);
}

static void check(const unsigned char *buffer, int len, int from, int to, int round, const char *what)
{
    for (int at = 0; at < len; at++)
        if (buffer[at] != pattern(from, to, round, at)) {
            fprintf(stderr, "%s of %d bytes, round %d, from %d to %d: byte %d is wrong\n", what, len, round, from, to, at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static void latency(unsigned char *buffer, int len, int rounds)
{
    int peer = rank ^ 1;
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++)
            if (turn == (rank & 1)) {
                fill(buffer, len, rank, peer, round);
                MPI_Send(buffer, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
            } else {
                MPI_Recv(buffer, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check(buffer, len, peer, rank, round, "latency");
            }
    }
}

static void bandwidth(unsigned char *buffers, int len, int rounds)
{
    enum { WINDOW = 8 };
    MPI_Request requests[WINDOW];
    MPI_Status statuses[WINDOW];
    int peer = rank ^ 1;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < WINDOW; i++) {
            unsigned char *buffer = buffers + (size_t)i * len;
            if (rank & 1) {
                MPI_Irecv(buffer, len, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[i]);
            } else {
                fill(buffer, len, rank, peer, round * WINDOW + i);
                MPI_Isend(buffer, len, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[i]);
            }
        }
        MPI_Waitall(WINDOW, requests, statuses);
        for (int i = 0; (rank & 1) && i < WINDOW; i++)
            check(buffers + (size_t)i * len, len, peer, rank, round * WINDOW + i, "bandwidth");
    }
}

static void alltoall(unsigned char *to, unsigned char *from, int len, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        for (int peer = 0; peer < size; peer++)
            fill(to + (size_t)peer * len, len, rank, peer, round);
        MPI_Alltoall(to, len, MPI_BYTE, from, len, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < size; peer++)
            check(from + (size_t)peer * len, len, peer, rank, round, "alltoall");
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *one = malloc(8 * LARGEST), *other = malloc(8 * LARGEST);
    int sizes[] = {1, 64, 4096, 65536, LARGEST};
    for (int i = 0; i < 5; i++) {
        int rounds = sizes[i] > 65536 ? 2 : 10;
        latency(one, sizes[i], rounds);
        bandwidth(one, sizes[i], rounds);
        alltoall(one, other, sizes[i], rounds);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks are right\n", size);
    MPI_Finalize();
    return 0;
}
