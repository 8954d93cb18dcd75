/* The ABI of Open MPI 4 and 5: handles are addresses of exported objects, found by
 * name. Source: mpi.h of Open MPI 4.1.4 and 5.0.11. */
#include "transport/mpi_backend.h"

#include <stddef.h>
#include <stdint.h>

typedef void *H_Comm, *H_Group, *H_Type, *H_Op, *H_Request, *H_Info, *H_Errhandler;

typedef struct {
    int source;
    int tag;
    int error;
    int cancelled;
    size_t n_bytes;
} H_Status;

static struct constants {
    void *comm_null, *comm_world, *comm_self, *request_null, *info_null, *errors_return,
        *byte;
    void *type[PLAIT_C128 + 1];
    void *op[PLAIT_REDUCE_COUNT];
} constants;

#define HANDLE(_type, _bits) ((_type)(uintptr_t)(_bits))
#define BITS(_h)             ((uint64_t)(uintptr_t)(_h))

#define K_COMM_NULL         (constants.comm_null)
#define K_COMM_WORLD        (constants.comm_world)
#define K_COMM_SELF         (constants.comm_self)
#define K_REQUEST_NULL      (constants.request_null)
#define K_INFO_NULL         (constants.info_null)
#define K_ERRORS_RETURN     (constants.errors_return)
#define K_BYTE              (constants.byte)
#define K_ANY_SOURCE        (-1)
#define K_ANY_TAG           (-1)
#define K_PROC_NULL         (-2)
#define K_COMM_TYPE_SHARED  0
#define K_TAG_UB            0
#define K_STATUS_IGNORE     NULL
#define K_IN_PLACE          ((void *)1)
#define K_ERR_TRUNCATE      15
#define K_THREAD_FUNNELED   1
#define K_THREAD_SERIALIZED 2
#define K_THREAD_MULTIPLE   3
#define K_TYPE(_dtype)      (constants.type[_dtype])
#define K_OP(_op)           (constants.op[_op])

#define OBJECT(_name, _member)                                    \
    {                                                             \
        "ompi_" _name, offsetof(struct constants, _member), false \
    }
static const plait_mpi_symbol_t objects[] = {
    OBJECT("mpi_comm_null", comm_null),
    OBJECT("mpi_comm_world", comm_world),
    OBJECT("mpi_comm_self", comm_self),
    OBJECT("request_null", request_null),
    OBJECT("mpi_info_null", info_null),
    OBJECT("mpi_errors_return", errors_return),
    OBJECT("mpi_byte", byte),
    OBJECT("mpi_c_bool", type[PLAIT_BOOL]),
    OBJECT("mpi_int8_t", type[PLAIT_S8]),
    OBJECT("mpi_int16_t", type[PLAIT_S16]),
    OBJECT("mpi_int32_t", type[PLAIT_S32]),
    OBJECT("mpi_int64_t", type[PLAIT_S64]),
    OBJECT("mpi_uint8_t", type[PLAIT_U8]),
    OBJECT("mpi_uint16_t", type[PLAIT_U16]),
    OBJECT("mpi_uint32_t", type[PLAIT_U32]),
    OBJECT("mpi_uint64_t", type[PLAIT_U64]),
    OBJECT("mpi_float", type[PLAIT_F32]),
    OBJECT("mpi_double", type[PLAIT_F64]),
    OBJECT("mpi_c_float_complex", type[PLAIT_C64]),
    OBJECT("mpi_c_double_complex", type[PLAIT_C128]),
    OBJECT("mpi_op_sum", op[PLAIT_SUM]),
    OBJECT("mpi_op_prod", op[PLAIT_PROD]),
    OBJECT("mpi_op_min", op[PLAIT_MIN]),
    OBJECT("mpi_op_max", op[PLAIT_MAX]),
    OBJECT("mpi_op_land", op[PLAIT_LAND]),
    OBJECT("mpi_op_lor", op[PLAIT_LOR]),
    OBJECT("mpi_op_lxor", op[PLAIT_LXOR]),
    OBJECT("mpi_op_band", op[PLAIT_BAND]),
    OBJECT("mpi_op_bor", op[PLAIT_BOR]),
    OBJECT("mpi_op_bxor", op[PLAIT_BXOR]),
};

static plait_status_t load_constants(void *library)
{
    return plait_mpi_load_symbols(library, &constants,
                                  (int)(sizeof(objects) / sizeof(objects[0])), objects);
}

#define BACKEND     plait_mpi_backend_ompi
#define BACKEND_ABI "Open MPI"
#include "transport/mpi_backend.inc"
