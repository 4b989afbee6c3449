/*
 * A SCSI disk over iSER by libiscsi, every block with its checksum: disk FOLDER NUMBER CLIENTS BYTES URL NAME.
 *
 * NAME is the initiator's. Each of so many clients has a part of BYTES of the disk to itself: it writes that in transfers of 256
 * KiB, eight at a time, then reads it back. Every block of 4 KiB ends with the CRC-32 of what is before. FOLDER is where the
 * clients meet. Prints when it began and ended by the lab's clock, ns. Logging in is not timed, nor is making and checking data.
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdint.h>

#include "lab_time.h"

enum { SECTOR = 512, BLOCK = 4096, TRANSFER = 256 * 1024, DEPTH = 8 };

static struct iscsi_context *iscsi;
static int under_way;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "");
	exit(1);
}

static uint32_t crc32(const uint8_t *at, size_t length)
{
	uint32_t crc = ~0u;

	while (length--) {
		crc ^= *at++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* Says that this client is ready, and waits for the others. */
static void meet(const char *folder, int number, int clients)
{
	char name[4096];
	FILE *file;

	snprintf(name, sizeof(name), "%s/ready%d", folder, number);
	file = fopen(name, "w");
	if (!file || fclose(file))
		die(name);
	for (int other = 0; other < clients; other++) {
		snprintf(name, sizeof(name), "%s/ready%d", folder, other);
		while (access(name, F_OK))
			usleep(2000);
	}
}

static void done(struct iscsi_context *context, int status, void *task, void *what)
{
	(void)context;
	if (status != SCSI_STATUS_GOOD)
		die(what);
	scsi_free_scsi_task(task);
	under_way--;
}

/* Waits until fewer than so many transfers are under way. */
static void await_fewer(int most)
{
	while (under_way >= most) {
		struct pollfd it = {.fd = iscsi_get_fd(iscsi), .events = iscsi_which_events(iscsi)};

		if (poll(&it, 1, -1) < 0 || iscsi_service(iscsi, it.revents))
			die("iscsi_service");
	}
}

/* Writes or reads a part of the disk that begins at a sector. */
static void transfer(int lun, uint64_t first, uint8_t *data, size_t bytes, int writes)
{
	for (size_t at = 0; at < bytes; at += TRANSFER) {
		uint64_t sector = first + at / SECTOR;
		struct scsi_task *task;

		await_fewer(DEPTH);
		if (writes)
			task = iscsi_write16_task(iscsi, lun, sector, data + at, TRANSFER, SECTOR, 0, 0, 0, 0, 0, done, "write16");
		else
			task = iscsi_read16_task(iscsi, lun, sector, TRANSFER, SECTOR, 0, 0, 0, 0, 0, done, "read16");
		if (!task || (!writes && scsi_task_add_data_in_buffer(task, TRANSFER, data + at)))
			die("a transfer");
		under_way++;
	}
	await_fewer(1);
}

int main(int argc, char **argv)
{
	struct iscsi_url *url;
	uint8_t *out, *in;
	size_t bytes, at;
	uint64_t first;
	long long began, ended;
	int number;

	if (argc != 7 || !(bytes = strtoul(argv[4], NULL, 10)) || bytes % TRANSFER)
		die("disk FOLDER NUMBER CLIENTS BYTES URL NAME; BYTES are so many times 256 KiB");
	number = atoi(argv[2]);
	first = number * (bytes / SECTOR);
	out = malloc(bytes);
	in = calloc(1, bytes);
	if (!out || !in)
		die("no memory");
	for (at = 0; at < bytes; at += BLOCK) {
		uint32_t crc;

		for (size_t i = 0; i < BLOCK - sizeof(crc); i++)
			out[at + i] = (number * 101 + (at + i) * 2654435761u) >> 24;
		crc = crc32(out + at, BLOCK - sizeof(crc));
		memcpy(out + at + BLOCK - sizeof(crc), &crc, sizeof(crc));
	}
	iscsi = iscsi_create_context(argv[6]);
	url = iscsi ? iscsi_parse_full_url(iscsi, argv[5]) : NULL;
	if (!url)
		die(argv[5]);
	if (iscsi_init_transport(iscsi, ISER_TRANSPORT))
		die("iscsi_init_transport");
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	if (iscsi_full_connect_sync(iscsi, url->portal, url->lun)) {
		fprintf(stderr, "iscsi_full_connect_sync: %s\n", iscsi_get_error(iscsi));
		/* Nobody may listen yet: worth another try. */
		return 3;
	}
	meet(argv[1], number, atoi(argv[3]));
	began = lab_time();
	transfer(url->lun, first, out, bytes, 1);
	transfer(url->lun, first, in, bytes, 0);
	ended = lab_time();
	iscsi_logout_sync(iscsi);
	iscsi_destroy_url(url);
	iscsi_destroy_context(iscsi);
	iscsi = NULL;
	for (at = 0; at < bytes; at += BLOCK) {
		uint32_t crc;

		memcpy(&crc, in + at + BLOCK - sizeof(crc), sizeof(crc));
		if (crc != crc32(in + at, BLOCK - sizeof(crc)))
			die("a checksum is wrong");
	}
	if (memcmp(in, out, bytes))
		die("what was read is not what was written");
	printf("ns %lld %lld\n", began, ended);
	return 0;
}
