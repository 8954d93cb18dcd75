/* Inside the check device: what its parts need of each other. The parts are the device (check_device.c), its
 * memory, its streams and their work; each also has functions of the table. */
#ifndef PLAIT_TESTS_CHECK_DEVICE_PARTS_H
#define PLAIT_TESTS_CHECK_DEVICE_PARTS_H

#include "check_device.h"

#include <stddef.h>

/* Called at the begin of each call that may fail; the second one for calls allowed outside enter and leave. */
plait_status_t check_device_count_call(plait_device_t *device, const char *what);
plait_status_t check_device_count_free_call(plait_device_t *device, const char *what);
void check_device_count_bytes(plait_device_t *device, int64_t n_down, int64_t n_up,
                              int64_t n_across);

void check_device_fault(plait_device_t *device, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The device that this thread is inside of, or NULL. */
plait_device_t *check_device_current(void);

/* Tells another process, or thread, where memory of the device is. Not a call that may fail. */
plait_device_handle_t check_device_show(plait_device_t *device, const void *memory);
/* The address at which this process reads and writes it, until it is closed; NULL: the other process has
 * ended. */
char *check_device_open_shown(const plait_device_handle_t *handle);
void check_device_close_shown(const plait_device_handle_t *handle, char *view);

/* Faults where they are not. */
void check_device_need_live(plait_device_t *device, const char *what, const void *p,
                            int64_t n_bytes);
void check_device_need_pinned(plait_device_t *device, const void *host,
                              int64_t n_bytes);

/* Whether the mark existed before; it exists afterwards. */
bool check_device_mark(plait_device_t *device, uint64_t mark);

/* The work gets a copy of the argument. */
void check_device_enqueue(plait_stream_t to, void (*run)(plait_device_t *, void *),
                          const void *argument, size_t n_bytes);

plait_status_t check_device_host_take(plait_device_t *device, int64_t n_bytes,
                                      void **host_p);
void check_device_host_give(plait_device_t *device, void *host);
plait_status_t check_device_take(plait_device_t *device, plait_stream_t stream,
                                 int64_t n_bytes, void **memory_p);
void check_device_give(plait_device_t *device, plait_stream_t stream, void *memory);

plait_status_t check_device_stream_create(plait_device_t *device,
                                          plait_stream_t *stream_p);
void check_device_stream_destroy(plait_device_t *device, plait_stream_t stream);
plait_status_t check_device_stream_wait(plait_device_t *device, plait_stream_t stream);
plait_status_t check_device_event_create(plait_device_t *device,
                                         plait_event_t **event_p);
void check_device_event_destroy(plait_device_t *device, plait_event_t *event);
plait_status_t check_device_event_record(plait_device_t *device, plait_event_t *event,
                                         plait_stream_t stream);
plait_status_t check_device_event_order(plait_device_t *device, plait_event_t *event,
                                        plait_stream_t stream);
plait_status_t check_device_event_wait(plait_device_t *device, plait_event_t *event);

plait_status_t check_device_event_ask(plait_device_t *device, plait_event_t *event,
                                      bool *is_over_p);

plait_status_t check_device_to_host(plait_device_t *device, plait_stream_t stream,
                                    void *host, const void *src, int64_t n_bytes);
plait_status_t check_device_to_device(plait_device_t *device, plait_stream_t stream,
                                      void *dst, const void *host, int64_t n_bytes);
plait_status_t check_device_copy(plait_device_t *device, plait_stream_t stream,
                                 void *dst, plait_device_t *from, const void *src,
                                 int64_t n_bytes);
plait_status_t check_device_memory_export(plait_device_t *device, const void *memory,
                                          int64_t n_bytes, bool may_be_virtual,
                                          plait_device_shown_t *shown_p);
plait_status_t check_device_memory_import(plait_device_t *device,
                                          const plait_device_shown_t *shown,
                                          void **base_p);
plait_status_t check_device_virtual_take(plait_device_t *device, int64_t n_bytes,
                                         void **memory_p);
void check_device_virtual_give(plait_device_t *device, void *memory);
void check_device_memory_drop(plait_device_t *device, void *base);
plait_status_t check_device_event_export(plait_device_t *device,
                                         plait_event_t **event_p,
                                         plait_device_handle_t *handle_p);
plait_status_t check_device_event_import(plait_device_t *device,
                                         const plait_device_handle_t *handle,
                                         plait_event_t **event_p);
/* Faults where they are neither the device's nor of an import that is what it was, which is not
 * dropped before the second call. */
void check_device_begin_read(plait_device_t *device, const void *p, int64_t n_bytes);
void check_device_end_read(plait_device_t *device, const void *p);
plait_status_t check_device_boxes(plait_device_t *device, plait_stream_t stream,
                                  plait_dtype_t dtype, int64_t n_boxes,
                                  const plait_device_box_t list[]);
plait_status_t check_device_reduce(plait_device_t *device, plait_stream_t stream,
                                   plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                   int n_pieces, const void *const pieces[], void *dst);
plait_status_t check_device_scale(plait_device_t *device, plait_stream_t stream,
                                  plait_dtype_t dtype, int64_t n, double factor,
                                  void *x);
plait_status_t check_device_fft_plan(plait_device_t *device,
                                     const plait_device_fft_t *fft,
                                     int64_t *work_bytes_p);
plait_status_t check_device_fft(plait_device_t *device, plait_stream_t stream,
                                const plait_device_fft_t *fft, const void *in,
                                void *out, void *work);
plait_status_t check_device_tile_plan(plait_device_t *device,
                                      const plait_device_tile_t *tile,
                                      int64_t *work_bytes_p);
plait_status_t check_device_tile(plait_device_t *device, plait_stream_t stream,
                                 const plait_device_tile_t *tile, void *work);
plait_status_t check_device_joint_plan(const plait_joint_problem_t *problem,
                                       int64_t *work_bytes_p);
plait_status_t check_device_joint_run(const plait_joint_problem_t *problem,
                                      int64_t work_bytes, void *const a[],
                                      void *const b[], void *const work[], void *w,
                                      int32_t *info_p);

#endif
