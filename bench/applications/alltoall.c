/*
 * MPI_Alltoall, every byte checked: alltoall BYTES ROUNDS. Each rank sends each other BYTES in each of ROUNDS. Prints
 * when it began and ended by the lab's clock, ns.
 *
 * A round before that makes the connections. Data are made before, and checked after, what is timed.
 */
#include <mpi.h>

#include "lab_time.h"

static unsigned char pattern(int from, int to, int round, size_t at)
{
	return from * 101 + to * 37 + round * 13 + at * 7 + (at >> 8) * 3;
}

int main(int argc, char **argv)
{
	long long began, ended;
	int rank, size, rounds;
	size_t bytes, all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	bytes = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
	rounds = argc == 3 ? atoi(argv[2]) : 0;
	all = bytes * size;
	unsigned char *to = malloc(all * (rounds + 1)), *from = calloc(rounds + 1, all);
	if (!bytes || rounds < 1 || !to || !from) {
		fprintf(stderr, "alltoall BYTES ROUNDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int round = 0; round <= rounds; round++)
		for (int peer = 0; peer < size; peer++)
			for (size_t at = 0; at < bytes; at++)
				to[round * all + peer * bytes + at] = pattern(rank, peer, round, at);
	MPI_Alltoall(to, bytes, MPI_BYTE, from, bytes, MPI_BYTE, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	began = lab_time();
	for (int round = 1; round <= rounds; round++)
		MPI_Alltoall(to + round * all, bytes, MPI_BYTE, from + round * all, bytes, MPI_BYTE, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	ended = lab_time();
	for (int round = 0; round <= rounds; round++)
		for (int peer = 0; peer < size; peer++)
			for (size_t at = 0; at < bytes; at++)
				if (from[round * all + peer * bytes + at] != pattern(peer, rank, round, at)) {
					fprintf(stderr, "round %d, from %d to %d: byte %zu is wrong\n", round, peer, rank, at);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("ns %lld %lld\n", began, ended);
	MPI_Finalize();
	free(to);
	free(from);
	return 0;
}
