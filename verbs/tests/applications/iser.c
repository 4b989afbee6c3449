/*
 * A disk image to a SCSI disk and back, by libiscsi: iser URL NAME IMAGE COPY.
 *
 * NAME is the initiator's. Writes the image in transfers of different lengths, then reads the disk in other ones.
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

static struct iscsi_context *iscsi;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "");
	exit(1);
}

static void check(struct scsi_task *task, const char *what)
{
	if (!task || task->status != SCSI_STATUS_GOOD)
		die(what);
}

int main(int argc, char **argv)
{
	/* Blocks of a transfer: one, a page, odd numbers, more than one burst. */
	static const uint32_t lengths[] = {1, 8, 3, 64, 127, 512, 2};
	enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };
	struct iscsi_url *url;
	FILE *from, *to;
	uint8_t *image, *copy;
	uint64_t blocks, at;
	unsigned int i;
	long size;

	if (argc != 5)
		die("iser URL NAME IMAGE COPY");
	from = fopen(argv[3], "rb");
	if (!from || fseek(from, 0, SEEK_END) || (size = ftell(from)) <= 0 || size % BLOCK || fseek(from, 0, SEEK_SET))
		die(argv[3]);
	blocks = size / BLOCK;
	image = malloc(size);
	copy = malloc(size);
	if (!image || !copy || fread(image, 1, size, from) != (size_t)size)
		die(argv[3]);
	iscsi = iscsi_create_context(argv[2]);
	url = iscsi ? iscsi_parse_full_url(iscsi, argv[1]) : NULL;
	if (!url)
		die(argv[1]);
	if (iscsi_init_transport(iscsi, ISER_TRANSPORT))
		die("iscsi_init_transport");
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	if (iscsi_full_connect_sync(iscsi, url->portal, url->lun))
		die("iscsi_full_connect_sync");
	for (at = 0, i = 0; at < blocks; i++) {
		uint32_t n = lengths[i % LENGTHS] < blocks - at ? lengths[i % LENGTHS] : blocks - at;
		struct scsi_task *task = iscsi_write16_sync(iscsi, url->lun, at, image + at * BLOCK, n * BLOCK, BLOCK,
							    0, 0, 0, 0, 0);

		check(task, "iscsi_write16_sync");
		scsi_free_scsi_task(task);
		at += n;
	}
	for (at = 0, i = 3; at < blocks; i++) {
		uint32_t n = lengths[i % LENGTHS] < blocks - at ? lengths[i % LENGTHS] : blocks - at;
		struct scsi_task *task = iscsi_read16_sync(iscsi, url->lun, at, n * BLOCK, BLOCK, 0, 0, 0, 0, 0);

		check(task, "iscsi_read16_sync");
		if (task->datain.size != (int)(n * BLOCK))
			die("fewer bytes than asked for");
		memcpy(copy + at * BLOCK, task->datain.data, n * BLOCK);
		scsi_free_scsi_task(task);
		at += n;
	}
	iscsi_logout_sync(iscsi);
	iscsi_destroy_url(url);
	iscsi_destroy_context(iscsi);
	to = fopen(argv[4], "wb");
	if (!to || fwrite(copy, 1, size, to) != (size_t)size || fclose(to))
		die(argv[4]);
	return 0;
}
