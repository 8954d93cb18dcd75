/* A side: what a started operation has on a device. This is memory for its arrays, and a stream of plait's own
 * beside the program's stream; events join the two. Nothing here waits for the device, with one exception:
 * taking a side that another operation has just left. */
#ifndef PLAIT_PLAN_SIDE_H
#define PLAIT_PLAN_SIDE_H

#include "device/device.h"

enum { PLAIT_NUMBER_FLOATS = 2 };

typedef struct plait_side plait_side_t;

/* Memory that exists in the order of the program's stream. n_bytes 0: NULL. */
plait_status_t plait_side_take(plait_device_t *device, plait_stream_t program,
                               int64_t n_bytes, plait_side_t **side_p);

void *plait_side_memory(const plait_side_t *side);
plait_stream_t plait_side_stream(const plait_side_t *side);

/* On the program's stream: copies the operands, and copies the number to its place in the program; then the
 * side's own stream goes on. */
plait_status_t plait_side_begin(plait_side_t *side, plait_stream_t program,
                                int64_t n_boxes, const plait_device_box_t boxes[],
                                const float number[PLAIT_NUMBER_FLOATS], void *to);

/* The program's stream goes on after all work on the side's stream, copies the results, and gets the memory. */
plait_status_t plait_side_end(plait_side_t *side, plait_stream_t program,
                              int64_t n_boxes, const plait_device_box_t boxes[]);

/* Keeps the side for the next operation; NULL is fine. */
void plait_side_give(plait_side_t *side);

/* Gives idle sides back to the device, for tests. */
void plait_side_trim(plait_device_t *device);

#endif
