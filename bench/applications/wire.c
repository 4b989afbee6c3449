/*
 * A wire between two network namespaces that loses packets, for the kernel's own protocols and others beside them. Needs
 * CAP_NET_ADMIN and /dev/net/tun.
 *
 *   wire [-l LOSS] [-m MTU] [-s SEED] COMMAND COMMAND
 *
 * Each COMMAND, a line for sh, runs in a namespace of its own, as 10.77.0.1 and 10.77.0.2, the second 0.2 s after the first. Ends
 * with the first status that is not 0, 2 for bad options.
 *
 *   -l LOSS     percent of packets lost, each direction [0]      -m MTU     of both interfaces [1500]
 *   -s SEED     random seed [1]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_address(int sock, struct ifreq *request, unsigned long what, uint32_t address)
{
	struct sockaddr_in *to = (struct sockaddr_in *)&request->ifr_addr;

	memset(to, 0, sizeof *to);
	to->sin_family = AF_INET;
	to->sin_addr.s_addr = htonl(address);
	if (ioctl(sock, what, request))
		err(1, "address of %s", request->ifr_name);
}

static void bring_up(int sock, struct ifreq *request)
{
	if (ioctl(sock, SIOCGIFFLAGS, request))
		err(1, "flags of %s", request->ifr_name);
	request->ifr_flags |= IFF_UP;
	if (ioctl(sock, SIOCSIFFLAGS, request))
		err(1, "flags of %s", request->ifr_name);
}

/* Moves this process into a namespace of its own with one end of the wire, which is returned. */
static int make_end(int which, int mtu)
{
	struct ifreq request = { .ifr_name = "wire", .ifr_flags = IFF_TUN | IFF_NO_PI };
	struct ifreq loopback = { .ifr_name = "lo" };
	int sock, tun;

	if (unshare(CLONE_NEWNET))
		err(1, "a network namespace");
	tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
	if (tun < 0 || ioctl(tun, TUNSETIFF, &request))
		err(1, "/dev/net/tun");
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	set_address(sock, &request, SIOCSIFADDR, 0x0a4d0001 + which);
	set_address(sock, &request, SIOCSIFNETMASK, 0xffffff00);
	request.ifr_mtu = mtu;
	if (ioctl(sock, SIOCSIFMTU, &request))
		err(1, "an MTU of %d", mtu);
	bring_up(sock, &request);
	bring_up(sock, &loopback);
	close(sock);
	return tun;
}

static void hand_over(int channel, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	if (sendmsg(channel, &message, 0) != 1)
		err(1, "sendmsg");
}

static int take_over(int channel)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	int fd;

	if (recvmsg(channel, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		errx(1, "an end of the wire was not made");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

/* Carries packets between the ends until it is killed. */
static void carry(int ends[2], double loss, uint64_t seed)
{
	uint64_t limit = loss >= 100 ? UINT64_MAX : (uint64_t)(loss / 100 * 18446744073709551615.0);
	static char packet[65536];

	for (;;) {
		struct pollfd ready[2] = { { ends[0], POLLIN, 0 }, { ends[1], POLLIN, 0 } };

		if (poll(ready, 2, -1) < 0 && errno != EINTR)
			err(1, "poll");
		for (int from = 0; from < 2; from++) {
			for (int k = 0; k < 64; k++) {
				ssize_t len = read(ends[from], packet, sizeof packet);

				if (len <= 0)
					break;
				/* xorshift64* */
				seed ^= seed >> 12, seed ^= seed << 25, seed ^= seed >> 27;
				if (seed * 0x2545f4914f6cdd1dull >= limit && write(ends[1 - from], packet, len) < 0)
					warn("write");
			}
		}
	}
}

int main(int argc, char **argv)
{
	double loss = 0;
	uint64_t seed = 1;
	int mtu = 1500, option, ends[2], channel[2], status = 0, left = 2;
	pid_t children[2];

	while ((option = getopt(argc, argv, "l:m:s:")) != -1) {
		switch (option) {
		case 'l': loss = atof(optarg); break;
		case 'm': mtu = atoi(optarg); break;
		case 's': seed = strtoull(optarg, NULL, 0); break;
		default: return 2;
		}
	}
	if (argc - optind != 2 || loss < 0 || loss > 100 || !seed) {
		fprintf(stderr, "usage: wire [-l LOSS] [-m MTU] [-s SEED] COMMAND COMMAND\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel))
		err(1, "socketpair");
	for (int which = 0; which < 2; which++) {
		if ((children[which] = fork()) == 0) {
			int tun;

			prctl(PR_SET_PDEATHSIG, SIGTERM);
			tun = make_end(which, mtu);
			hand_over(channel[1], tun);
			close(tun);
			if (which)
				usleep(200 * 1000);
			execl("/bin/sh", "sh", "-c", argv[optind + which], NULL);
			err(1, "/bin/sh");
		}
		ends[which] = take_over(channel[0]);
	}
	pid_t carrier = fork();
	if (carrier == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		carry(ends, loss, seed);
	}
	while (left > 0) {
		int how;
		pid_t ended = wait(&how);

		if (ended == carrier)
			errx(1, "the wire has broken");
		left--;
		if (!status && how)
			status = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
		if (status && left)
			kill(children[ended == children[0]], SIGTERM);
	}
	kill(carrier, SIGKILL);
	return status;
}
