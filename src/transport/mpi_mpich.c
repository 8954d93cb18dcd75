/* The ABI of MPICH, Intel MPI and Cray MPI (MPICH ABI compatibility initiative):
 * handles are ints, constants are literals. Source: mpi.h of MPICH 4.0.2 and 5.0.2. */
#include "transport/mpi_backend.h"

#include <stdint.h>

typedef int H_Comm, H_Group, H_Type, H_Op, H_Request, H_Info, H_Errhandler;

typedef struct {
    int count_low;
    int count_high_and_cancelled;
    int source;
    int tag;
    int error;
} H_Status;

#define HANDLE(_type, _bits) ((_type)(uint32_t)(_bits))
#define BITS(_h)             ((uint64_t)(uint32_t)(_h))

#define K_COMM_NULL         0x04000000
#define K_COMM_WORLD        0x44000000
#define K_COMM_SELF         0x44000001
#define K_REQUEST_NULL      0x2c000000
#define K_INFO_NULL         0x1c000000
#define K_ERRORS_RETURN     0x54000001
#define K_BYTE              0x4c00010d
#define K_ANY_SOURCE        (-2)
#define K_ANY_TAG           (-1)
#define K_PROC_NULL         (-1)
#define K_COMM_TYPE_SHARED  1
#define K_TAG_UB            0x64400001
#define K_STATUS_IGNORE     ((void *)1)
#define K_IN_PLACE          ((void *)-1)
#define K_ERR_TRUNCATE      14
#define K_THREAD_FUNNELED   1
#define K_THREAD_SERIALIZED 2
#define K_THREAD_MULTIPLE   3
#define K_TYPE(_dtype)      (types[_dtype])
#define K_OP(_op)           (ops[_op])

static const H_Type types[] = {
    [PLAIT_BOOL] = 0x4c00013f, /* C_BOOL */
    [PLAIT_S8] = 0x4c000137,   [PLAIT_S16] = 0x4c000238, [PLAIT_S32] = 0x4c000439,
    [PLAIT_S64] = 0x4c00083a,  [PLAIT_U8] = 0x4c00013b,  [PLAIT_U16] = 0x4c00023c,
    [PLAIT_U32] = 0x4c00043d,  [PLAIT_U64] = 0x4c00083e, [PLAIT_F32] = 0x4c00040a,
    [PLAIT_F64] = 0x4c00080b,  [PLAIT_C64] = 0x4c000840, /* C_FLOAT_COMPLEX */
    [PLAIT_C128] = 0x4c001041,                           /* C_DOUBLE_COMPLEX */
};

static const H_Op ops[PLAIT_REDUCE_COUNT] = {
    [PLAIT_SUM] = 0x58000003,  [PLAIT_PROD] = 0x58000004, [PLAIT_MIN] = 0x58000002,
    [PLAIT_MAX] = 0x58000001,  [PLAIT_LAND] = 0x58000005, [PLAIT_LOR] = 0x58000007,
    [PLAIT_LXOR] = 0x58000009, [PLAIT_BAND] = 0x58000006, [PLAIT_BOR] = 0x58000008,
    [PLAIT_BXOR] = 0x5800000a,
};

static plait_status_t load_constants(void *library)
{
    (void)library;
    return PLAIT_OK;
}

#define BACKEND     plait_mpi_backend_mpich
#define BACKEND_ABI "MPICH"
#include "transport/mpi_backend.inc"
