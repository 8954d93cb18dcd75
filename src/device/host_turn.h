/* Matrices of small elements, transposed in host memory. */
#ifndef PLAIT_DEVICE_HOST_TURN_H
#define PLAIT_DEVICE_HOST_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* dst[i][j] = src[j][i]: elements follow each other along i in src, along j in dst. */
typedef struct {
    int64_t n_i, n_j;
    int64_t src_step, dst_step; /* bytes from row to row, on each side */
    int64_t n_bytes;            /* of an element: 1, 2, 4, 8, 16 or 32 */
    bool is_streamed;           /* past the cache; the caller fences */
} plait_host_turn_t;

/* src and dst do not overlap. */
void plait_host_turn(const plait_host_turn_t *turn, const char *src, char *dst);

#endif
