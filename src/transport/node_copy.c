#include "transport/node_copy.h"

#include "base/checked.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/prctl.h>

/* Each remote range costs about 420 ns, a byte 0.1 to 0.3 ns (AMD EPYC, Linux 6): to read a gap of 1 KiB
 * between two short rows is cheaper than to skip it, by a factor of two or more. */
enum {
    MAX_GAP_BYTES = 1024,
    MAX_ROW_BYTES = 2048,
    BOUNCE_BYTES = 64 << 10, /* on the stack, and in the cache */
    MAX_SPANS = 128
};

/* Rows that are read together. */
typedef struct {
    struct iovec span[MAX_SPANS];
    int64_t n;
    int64_t n_bytes;
    int64_t n_rows;
} spans_t;

/* A place in a list of memory ranges. */
typedef struct {
    const struct iovec *list;
    int64_t n;
    int64_t done_bytes; /* of list[0] */
} cursor_t;

void plait_node_expose(void)
{
    /* Refused by kernels without Yama, which need no permission: the probe decides. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

int plait_node_probe(pid_t pid, uint64_t address, uint64_t nonce)
{
    uint64_t found = ~nonce;
    struct iovec local = {.iov_base = &found, .iov_len = sizeof(found)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address,
                           .iov_len = sizeof(found)};
    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

    if (n < 0) {
        return errno;
    }
    return (found == nonce) ? 0 : -1;
}

bool plait_node_probe_write(pid_t pid, uint64_t address, uint64_t nonce)
{
    struct iovec local = {.iov_base = &nonce, .iov_len = sizeof(nonce)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address,
                           .iov_len = sizeof(nonce)};
    ssize_t n = process_vm_writev(pid, &local, 1, &remote, 1, 0);

    return n == (ssize_t)sizeof(nonce) && plait_node_probe(pid, address, nonce) == 0;
}

static void skip_empty(cursor_t *cursor)
{
    while ((cursor->n > 0) && (cursor->list[0].iov_len == (size_t)cursor->done_bytes)) {
        cursor->list++;
        cursor->n--;
        cursor->done_bytes = 0;
    }
}

static void advance(cursor_t *cursor, int64_t n_bytes)
{
    skip_empty(cursor);
    while (n_bytes > 0) {
        int64_t step =
            plait_min(n_bytes, (int64_t)cursor->list[0].iov_len - cursor->done_bytes);
        cursor->done_bytes += step;
        n_bytes -= step;
        skip_empty(cursor);
    }
}

/* The next ranges for one call: the list itself, or a copy whose first range is cut. */
static const struct iovec *window(const cursor_t *cursor, struct iovec copy[IOV_MAX],
                                  int64_t *n_p)
{
    const struct iovec *at = cursor->list;

    *n_p = plait_min(cursor->n, IOV_MAX);
    if (cursor->done_bytes > 0) {
        memcpy(copy, cursor->list, (size_t)*n_p * sizeof(copy[0]));
        copy[0].iov_base = (char *)copy[0].iov_base + cursor->done_bytes;
        copy[0].iov_len -= (size_t)cursor->done_bytes;
        at = copy;
    }
    return at;
}

/* A copy on its way: the ranges here and there. */
typedef struct {
    pid_t pid;
    bool is_write;
    cursor_t local, remote;
} copy_t;

/* One call moves as much as both windows hold: at most IOV_MAX ranges and about 2 GiB. It moves less if it
 * meets memory that it cannot reach; the next call then says why. */
static ssize_t copy_some(const copy_t *copy)
{
    struct iovec cut_local[IOV_MAX];
    struct iovec cut_remote[IOV_MAX];
    int64_t n_here = 0;
    int64_t n_there = 0;
    const struct iovec *here = window(&copy->local, cut_local, &n_here);
    const struct iovec *there = window(&copy->remote, cut_remote, &n_there);

    return copy->is_write ? process_vm_writev(copy->pid, here, (unsigned long)n_here,
                                              there, (unsigned long)n_there, 0)
                          : process_vm_readv(copy->pid, here, (unsigned long)n_here,
                                             there, (unsigned long)n_there, 0);
}

/* Bytes between the end of one row and the start of the next if the next row joins the span, else -1. The gap
 * is shorter than a page, so its pages are those of the rows beside it. */
static int64_t gap_between(const char *end, const char *next)
{
    int64_t gap = (int64_t)((intptr_t)next - (intptr_t)end);

    return ((gap >= 0) && (gap <= MAX_GAP_BYTES)) ? gap : -1;
}

static struct iovec row_at(const cursor_t *cursor, int64_t i)
{
    struct iovec row = cursor->list[i];

    if (i == 0) {
        row.iov_base = (char *)row.iov_base + cursor->done_bytes;
        row.iov_len -= (size_t)cursor->done_bytes;
    }
    return row;
}

/* Joins the next rows to spans, until there is no room. */
static void spans_build(const cursor_t *from, spans_t *spans)
{
    *spans = (spans_t){0};
    for (int64_t i = 0; i < from->n; i++) {
        struct iovec row = row_at(from, i);
        int64_t n_bytes = (int64_t)row.iov_len;
        struct iovec *last = (spans->n > 0) ? &spans->span[spans->n - 1] : NULL;
        int64_t gap =
            (last != NULL)
                ? gap_between((char *)last->iov_base + last->iov_len, row.iov_base)
                : -1;
        if ((n_bytes > MAX_ROW_BYTES) || ((gap < 0) && (spans->n == MAX_SPANS)) ||
            (spans->n_bytes + n_bytes + plait_max(gap, 0) > BOUNCE_BYTES)) {
            break;
        }
        if (gap >= 0) {
            last->iov_len += (size_t)(gap + n_bytes);
        } else {
            spans->span[spans->n++] = row;
        }
        spans->n_bytes += n_bytes + plait_max(gap, 0);
        spans->n_rows++;
    }
}

static void scatter(cursor_t *to, const char *from, int64_t n_bytes)
{
    while ((n_bytes > 0) && (to->n > 0)) {
        struct iovec place = row_at(to, 0);
        int64_t step = plait_min(n_bytes, (int64_t)place.iov_len);
        memcpy(place.iov_base, from, (size_t)step);
        advance(to, step);
        from += step;
        n_bytes -= step;
    }
}

/* Reads the spans of many short rows close together as a whole, and copies the rows from there. False if that
 * does not pay or does not work: then nothing has moved. */
static bool read_spans(copy_t *copy)
{
    cursor_t *from = &copy->remote;
    char bounce[BOUNCE_BYTES];
    struct iovec local = {.iov_base = bounce};
    spans_t spans;
    const char *at = bounce;

    spans_build(from, &spans);
    local.iov_len = (size_t)spans.n_bytes;
    if ((spans.n_rows < 4) || (spans.n_rows < 2 * spans.n) ||
        (process_vm_readv(copy->pid, &local, 1, spans.span, (unsigned long)spans.n,
                          0) != (ssize_t)spans.n_bytes)) {
        return false;
    }
    for (int64_t i = 0; i < spans.n_rows; i++) {
        struct iovec row = row_at(from, 0);
        scatter(&copy->local, at, (int64_t)row.iov_len);
        at += row.iov_len;
        int64_t gap = (i + 1 < spans.n_rows)
                          ? gap_between((char *)row.iov_base + row.iov_len,
                                        from->list[1].iov_base)
                          : -1;
        at += plait_max(gap, 0);
        from->list++;
        from->n--;
        from->done_bytes = 0;
    }
    skip_empty(from);
    return true;
}

/* Until both sides are through. */
static plait_status_t copy_all(copy_t *copy, int rank, int peer)
{
    plait_status_t status = PLAIT_OK;
    const char *what = copy->is_write ? "write" : "read";

    skip_empty(&copy->local);
    skip_empty(&copy->remote);
    while ((copy->local.n > 0) && (copy->remote.n > 0)) {
        if (!copy->is_write && read_spans(copy)) {
            continue;
        }
        ssize_t n = copy_some(copy);
        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        PLAIT_CHECK(n > 0,
                    (n < 0 && errno == ESRCH) ? PLAIT_ERR_PEER : PLAIT_ERR_TRANSPORT,
                    "rank %d cannot %s memory of rank %d (process %d): %s", rank, what,
                    peer, (int)copy->pid, (n < 0) ? strerror(errno) : "nothing moved");
        advance(&copy->local, n);
        advance(&copy->remote, n);
    }
    PLAIT_CHECK((copy->local.n == 0) && (copy->remote.n == 0), PLAIT_ERR_INTERNAL,
                "rank %d, a %s of memory of rank %d: the sides differ in size", rank,
                what, peer);
done:
    return status;
}

plait_status_t plait_node_read(int rank, int peer, pid_t pid, const struct iovec *local,
                               int64_t n_local, const struct iovec *remote,
                               int64_t n_remote)
{
    copy_t copy = {pid, false, {local, n_local, 0}, {remote, n_remote, 0}};

    return copy_all(&copy, rank, peer);
}

plait_status_t plait_node_write(int rank, int peer, pid_t pid,
                                const struct iovec *local, int64_t n_local,
                                const struct iovec *remote, int64_t n_remote)
{
    copy_t copy = {pid, true, {local, n_local, 0}, {remote, n_remote, 0}};

    return copy_all(&copy, rank, peer);
}
