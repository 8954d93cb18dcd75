/* The standard ABI of MPI 5.0, chapter 20: pointers with small literal values. Thread
 * levels are spaced too: 3 would mean SINGLE. Source: mpi_abi.h of MPICH 5.0.2. */
#include "transport/mpi_backend.h"

#include <stddef.h>
#include <stdint.h>

typedef struct comm *H_Comm;
typedef struct group *H_Group;
typedef struct type *H_Type;
typedef struct op *H_Op;
typedef struct request *H_Request;
typedef struct info *H_Info;
typedef struct errhandler *H_Errhandler;

typedef struct {
    int source;
    int tag;
    int error;
    int internal[5];
} H_Status;

#define HANDLE(_type, _bits) ((_type)(uintptr_t)(_bits))
#define BITS(_h)             ((uint64_t)(uintptr_t)(_h))

#define K_COMM_NULL         ((H_Comm)0x100)
#define K_COMM_WORLD        ((H_Comm)0x101)
#define K_COMM_SELF         ((H_Comm)0x102)
#define K_REQUEST_NULL      ((H_Request)0x180)
#define K_INFO_NULL         ((H_Info)0x130)
#define K_ERRORS_RETURN     ((H_Errhandler)0x143)
#define K_BYTE              ((H_Type)0x247)
#define K_ANY_SOURCE        (-1)
#define K_ANY_TAG           (-2)
#define K_PROC_NULL         (-3)
#define K_COMM_TYPE_SHARED  221
#define K_TAG_UB            501
#define K_STATUS_IGNORE     NULL
#define K_IN_PLACE          ((void *)1)
#define K_ERR_TRUNCATE      15
#define K_THREAD_FUNNELED   1024
#define K_THREAD_SERIALIZED 2048
#define K_THREAD_MULTIPLE   4096
#define K_TYPE(_dtype)      ((H_Type)types[_dtype])
#define K_OP(_op)           ((H_Op)ops[_op])

static const uintptr_t types[] = {
    [PLAIT_BOOL] = 0x238, /* C_BOOL */
    [PLAIT_S8] = 0x240,   [PLAIT_S16] = 0x248, [PLAIT_S32] = 0x250, [PLAIT_S64] = 0x258,
    [PLAIT_U8] = 0x241,   [PLAIT_U16] = 0x249, [PLAIT_U32] = 0x251, [PLAIT_U64] = 0x259,
    [PLAIT_F32] = 0x210,  [PLAIT_F64] = 0x214, [PLAIT_C64] = 0x212, /* C_FLOAT_COMPLEX
                                                                     */
    [PLAIT_C128] = 0x216, /* C_DOUBLE_COMPLEX */
};

static const uintptr_t ops[PLAIT_REDUCE_COUNT] = {
    [PLAIT_SUM] = 0x21,  [PLAIT_PROD] = 0x24, [PLAIT_MIN] = 0x22,  [PLAIT_MAX] = 0x23,
    [PLAIT_LAND] = 0x30, [PLAIT_LOR] = 0x31,  [PLAIT_LXOR] = 0x32, [PLAIT_BAND] = 0x28,
    [PLAIT_BOR] = 0x29,  [PLAIT_BXOR] = 0x2a,
};

static plait_status_t load_constants(void *library)
{
    (void)library;
    return PLAIT_OK;
}

#define BACKEND     plait_mpi_backend_std
#define BACKEND_ABI "standard"
#include "transport/mpi_backend.inc"
