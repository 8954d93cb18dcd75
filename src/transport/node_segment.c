#include "transport/node_segment.h"

#include "base/checked.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, CELL_BYTES = 64 };
enum { MAX_RING_CELLS = 1024, MIN_RING_CELLS = 32, ALL_RINGS_BYTES = 32 << 20 };

/* The magic number changes with the layout. */
static const uint64_t magic = 0x706c6169745f3034; /* "plait_04" */

/* A power of two, so that the rings of many ranks stay within the bound. */
static int ring_cells_of(int n_ranks)
{
    int64_t n_pairs = (int64_t)n_ranks * n_ranks;
    int n = MAX_RING_CELLS;

    while (n > MIN_RING_CELLS && n_pairs * n * CELL_BYTES > ALL_RINGS_BYTES) {
        n /= 2;
    }
    return n;
}

static int64_t ring_bytes(int n_cells)
{
    return (int64_t)sizeof(plait_node_ring_t) + (int64_t)n_cells * CELL_BYTES;
}

/* Parts in this order: header page, ranks, boxes, rings. */
static int64_t ranks_at(void)
{
    return PAGE_BYTES;
}

static int64_t boxes_at(int n_ranks)
{
    return ranks_at() + n_ranks * (int64_t)sizeof(plait_node_rank_t);
}

static int64_t rings_at(const plait_node_shape_t *shape)
{
    return boxes_at(shape->n_ranks) + 2 * (int64_t)shape->n_ranks * shape->box_bytes;
}

static int64_t bytes_of(const plait_node_shape_t *shape)
{
    int64_t n_rings =
        (shape->ring_cells > 0) ? (int64_t)shape->n_ranks * shape->n_ranks : 0;
    int64_t n = rings_at(shape) + n_rings * ring_bytes(shape->ring_cells);

    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

plait_node_shape_t plait_node_shape(int n_ranks)
{
    return (plait_node_shape_t){.n_ranks = n_ranks,
                                .box_bytes = PLAIT_NODE_BOX_BYTES,
                                .ring_cells = ring_cells_of(n_ranks)};
}

plait_status_t plait_node_segment_create(const plait_node_shape_t *shape,
                                         uint64_t nonce, plait_node_segment_t *segment)
{
    plait_status_t status = PLAIT_OK;
    plait_node_header_t *header = NULL;

    *segment = (plait_node_segment_t){.shape = *shape};
    PLAIT_TRY(plait_shared_create("plait-segment", bytes_of(shape), &segment->memory));
    header = plait_node_header(segment);
    header->n_bytes = segment->memory.n_bytes;
    header->n_ranks = shape->n_ranks;
    header->box_bytes = shape->box_bytes;
    header->ring_cells = shape->ring_cells;
    header->nonce = nonce;
    header->magic = magic;
done:
    return status;
}

plait_status_t plait_node_segment_own(const plait_node_shape_t *shape,
                                      plait_node_segment_t *segment)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_bytes = bytes_of(shape);
    void *base = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    PLAIT_CHECK(base != MAP_FAILED, PLAIT_ERR_NO_MEMORY,
                "no memory of %lld bytes for a communicator: %s", (long long)n_bytes,
                strerror(errno));
    *segment = (plait_node_segment_t){
        .memory = {.base = base, .n_bytes = n_bytes, .fd = -1}, .shape = *shape};
done:
    return status;
}

plait_status_t plait_node_segment_attach(pid_t pid, int fd,
                                         const plait_node_shape_t *shape,
                                         uint64_t nonce, plait_node_segment_t *segment)
{
    plait_status_t status = PLAIT_OK;
    const plait_node_header_t *header = NULL;
    const int64_t n_bytes = bytes_of(shape);

    *segment = (plait_node_segment_t){.shape = *shape};
    PLAIT_TRY(plait_shared_attach(pid, fd, &segment->memory));
    PLAIT_CHECK(segment->memory.n_bytes == n_bytes, PLAIT_ERR_UNSUPPORTED,
                "descriptor %d of process %d is not the segment of %lld bytes that it "
                "should be",
                fd, (int)pid, (long long)n_bytes);
    header = plait_node_header(segment);
    PLAIT_CHECK(header->magic == magic && header->nonce == nonce &&
                    header->n_ranks == shape->n_ranks &&
                    header->box_bytes == shape->box_bytes && header->n_bytes == n_bytes,
                PLAIT_ERR_UNSUPPORTED,
                "descriptor %d of process %d is the segment of another job", fd,
                (int)pid);
done:
    if (status != PLAIT_OK) {
        plait_node_segment_destroy(segment);
    }
    return status;
}

void plait_node_segment_seal(plait_node_segment_t *segment)
{
    plait_shared_close(&segment->memory);
}

void plait_node_segment_destroy(plait_node_segment_t *segment)
{
    plait_shared_destroy(&segment->memory);
}

plait_node_header_t *plait_node_header(const plait_node_segment_t *segment)
{
    void *at = segment->memory.base;

    return at;
}

plait_node_rank_t *plait_node_rank(const plait_node_segment_t *segment, int rank)
{
    void *at =
        segment->memory.base + ranks_at() + rank * (int64_t)sizeof(plait_node_rank_t);

    return at;
}

void plait_node_show_entered(const plait_node_segment_t *segment, plait_endpoint_t *end)
{
    end->entered = (char *)&plait_node_rank(segment, 0)->n_entered;
    end->entered_stride = sizeof(plait_node_rank_t);
}

plait_node_box_t *plait_node_box(const plait_node_segment_t *segment, int parity,
                                 int rank)
{
    const plait_node_shape_t *shape = &segment->shape;
    int64_t i = (int64_t)parity * shape->n_ranks + rank;
    void *at = segment->memory.base + boxes_at(shape->n_ranks) + i * shape->box_bytes;

    return at;
}

plait_node_ring_t *plait_node_ring(const plait_node_segment_t *segment, int from,
                                   int to)
{
    const plait_node_shape_t *shape = &segment->shape;
    int64_t i = (int64_t)to * shape->n_ranks + from;
    void *at =
        segment->memory.base + rings_at(shape) + i * ring_bytes(shape->ring_cells);

    return at;
}
