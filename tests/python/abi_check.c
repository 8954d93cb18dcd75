/* Compiles only if src/ffi/abi.h agrees with the header of the installed jaxlib:
 *   cc -std=c11 -fsyntax-only -Isrc -Iinclude -isystem INCLUDE_DIR tests/python/abi_check.c
 * with INCLUDE_DIR = jax.ffi.include_dir(). */
#include "ffi/abi.h"
#include "plait/dtype.h"

#include <xla/ffi/api/c_api.h>

/* Names before minor 4. */
#if XLA_FFI_API_MINOR >= 4
#define XLA_FFI_Extension_Base        XLA_FFI_InternalExtension
#define XLA_FFI_Error_GetMessage      XLA_FFI_Error_GetDetails
#define XLA_FFI_Error_GetMessage_Args XLA_FFI_Error_GetDetails_Args
#endif

#define SAME_SIZE(_a, _b) _Static_assert(sizeof(_a) == sizeof(_b), #_a)
#define SAME_PLACE(_a, _m, _b, _n)                                     \
    _Static_assert(offsetof(_a, _m) == offsetof(_b, _n) &&             \
                       sizeof(((_a *)0)->_m) == sizeof(((_b *)0)->_n), \
                   #_a "." #_m)
#define SAME_VALUE(_a, _b) _Static_assert((int)(_a) == (int)(_b), #_a)

SAME_SIZE(plait_ffi_buffer_t, XLA_FFI_Buffer);
SAME_PLACE(plait_ffi_buffer_t, dtype, XLA_FFI_Buffer, dtype);
SAME_PLACE(plait_ffi_buffer_t, data, XLA_FFI_Buffer, data);
SAME_PLACE(plait_ffi_buffer_t, rank, XLA_FFI_Buffer, rank);
SAME_PLACE(plait_ffi_buffer_t, dims, XLA_FFI_Buffer, dims);
SAME_SIZE(plait_ffi_buffers_t, XLA_FFI_Args);
SAME_SIZE(plait_ffi_buffers_t, XLA_FFI_Rets);
SAME_PLACE(plait_ffi_buffers_t, size, XLA_FFI_Args, size);
SAME_PLACE(plait_ffi_buffers_t, items, XLA_FFI_Args, args);
SAME_PLACE(plait_ffi_buffers_t, items, XLA_FFI_Rets, rets);
SAME_SIZE(plait_ffi_attrs_t, XLA_FFI_Attrs);
SAME_PLACE(plait_ffi_attrs_t, types, XLA_FFI_Attrs, types);
SAME_PLACE(plait_ffi_attrs_t, names, XLA_FFI_Attrs, names);
SAME_PLACE(plait_ffi_attrs_t, attrs, XLA_FFI_Attrs, attrs);
SAME_SIZE(plait_ffi_scalar_t, XLA_FFI_Scalar);
SAME_PLACE(plait_ffi_scalar_t, value, XLA_FFI_Scalar, value);
SAME_SIZE(plait_ffi_array_t, XLA_FFI_Array);
SAME_PLACE(plait_ffi_array_t, size, XLA_FFI_Array, size);
SAME_PLACE(plait_ffi_array_t, data, XLA_FFI_Array, data);
SAME_SIZE(plait_ffi_span_t, XLA_FFI_ByteSpan);
SAME_PLACE(plait_ffi_span_t, len, XLA_FFI_ByteSpan, len);
SAME_SIZE(plait_ffi_frame_t, XLA_FFI_CallFrame);
SAME_PLACE(plait_ffi_frame_t, api, XLA_FFI_CallFrame, api);
SAME_PLACE(plait_ffi_frame_t, ctx, XLA_FFI_CallFrame, ctx);
SAME_PLACE(plait_ffi_frame_t, stage, XLA_FFI_CallFrame, stage);
SAME_PLACE(plait_ffi_frame_t, args, XLA_FFI_CallFrame, args);
SAME_PLACE(plait_ffi_frame_t, rets, XLA_FFI_CallFrame, rets);
SAME_PLACE(plait_ffi_frame_t, attrs, XLA_FFI_CallFrame, attrs);
SAME_PLACE(plait_ffi_frame_t, future, XLA_FFI_CallFrame, future);
SAME_SIZE(plait_ffi_version_t, XLA_FFI_Api_Version);
SAME_PLACE(plait_ffi_version_t, minor_version, XLA_FFI_Api_Version, minor_version);
SAME_PLACE(plait_ffi_ext_t, type, XLA_FFI_Extension_Base, type);
SAME_PLACE(plait_ffi_ext_t, next, XLA_FFI_Extension_Base, next);
SAME_PLACE(plait_ffi_metadata_t, api_version, XLA_FFI_Metadata, api_version);
SAME_PLACE(plait_ffi_metadata_t, traits, XLA_FFI_Metadata, traits);
SAME_PLACE(plait_ffi_metadata_t, state_type_id, XLA_FFI_Metadata, state_type_id);
SAME_SIZE(plait_ffi_metadata_ext_t, XLA_FFI_Metadata_Extension);
SAME_PLACE(plait_ffi_metadata_ext_t, metadata, XLA_FFI_Metadata_Extension, metadata);
SAME_PLACE(plait_ffi_api_t, api_version, XLA_FFI_Api, api_version);
SAME_PLACE(plait_ffi_api_t, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME_PLACE(plait_ffi_api_t, future_create, XLA_FFI_Api, XLA_FFI_Future_Create);
SAME_PLACE(plait_ffi_api_t, future_set_available, XLA_FFI_Api,
           XLA_FFI_Future_SetAvailable);
SAME_PLACE(plait_ffi_api_t, future_set_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
SAME_PLACE(plait_ffi_future_create_t, future, XLA_FFI_Future_Create_Args, future);
SAME_PLACE(plait_ffi_future_set_available_t, future, XLA_FFI_Future_SetAvailable_Args,
           future);
SAME_PLACE(plait_ffi_future_set_error_t, future, XLA_FFI_Future_SetError_Args, future);
SAME_PLACE(plait_ffi_future_set_error_t, error, XLA_FFI_Future_SetError_Args, error);
SAME_VALUE(PLAIT_FFI_FUTURE_CREATE_SIZE, XLA_FFI_Future_Create_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_FUTURE_SET_AVAILABLE_SIZE,
           XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_FUTURE_SET_ERROR_SIZE, XLA_FFI_Future_SetError_Args_STRUCT_SIZE);
SAME_PLACE(plait_ffi_api_t, error_get_message, XLA_FFI_Api, XLA_FFI_Error_GetMessage);
SAME_PLACE(plait_ffi_api_t, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME_PLACE(plait_ffi_error_message_t, error, XLA_FFI_Error_GetMessage_Args, error);
SAME_PLACE(plait_ffi_error_message_t, message, XLA_FFI_Error_GetMessage_Args, message);
SAME_PLACE(plait_ffi_error_destroy_t, error, XLA_FFI_Error_Destroy_Args, error);
#if XLA_FFI_API_MINOR >= 4
SAME_PLACE(plait_ffi_error_message_t, errc, XLA_FFI_Error_GetDetails_Args, errc);
SAME_VALUE(PLAIT_FFI_ERROR_MESSAGE_SIZE, XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE);
#else
_Static_assert((int)PLAIT_FFI_ERROR_MESSAGE_SIZE >=
                   (int)XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE,
               "XLA takes more than it knows, not less");
#endif
SAME_VALUE(PLAIT_FFI_ERROR_DESTROY_SIZE, XLA_FFI_Error_Destroy_Args_STRUCT_SIZE);
SAME_PLACE(plait_ffi_api_t, memory_allocate, XLA_FFI_Api,
           XLA_FFI_DeviceMemory_Allocate);
SAME_PLACE(plait_ffi_api_t, memory_free, XLA_FFI_Api, XLA_FFI_DeviceMemory_Free);
SAME_PLACE(plait_ffi_memory_allocate_t, ctx, XLA_FFI_DeviceMemory_Allocate_Args, ctx);
SAME_PLACE(plait_ffi_memory_allocate_t, size, XLA_FFI_DeviceMemory_Allocate_Args, size);
SAME_PLACE(plait_ffi_memory_allocate_t, alignment, XLA_FFI_DeviceMemory_Allocate_Args,
           alignment);
SAME_PLACE(plait_ffi_memory_allocate_t, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SAME_PLACE(plait_ffi_memory_free_t, ctx, XLA_FFI_DeviceMemory_Free_Args, ctx);
SAME_PLACE(plait_ffi_memory_free_t, size, XLA_FFI_DeviceMemory_Free_Args, size);
SAME_PLACE(plait_ffi_memory_free_t, data, XLA_FFI_DeviceMemory_Free_Args, data);
SAME_VALUE(PLAIT_FFI_MEMORY_ALLOCATE_SIZE,
           XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_MEMORY_FREE_SIZE, XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE);
SAME_PLACE(plait_ffi_api_t, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME_PLACE(plait_ffi_stream_get_t, stream, XLA_FFI_Stream_Get_Args, stream);
SAME_VALUE(PLAIT_FFI_STREAM_GET_SIZE, XLA_FFI_Stream_Get_Args_STRUCT_SIZE);
SAME_PLACE(plait_ffi_api_t, run_id_get, XLA_FFI_Api, XLA_FFI_RunId_Get);
SAME_PLACE(plait_ffi_api_t, device_ordinal_get, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
SAME_PLACE(plait_ffi_error_create_t, message, XLA_FFI_Error_Create_Args, message);
SAME_PLACE(plait_ffi_error_create_t, errc, XLA_FFI_Error_Create_Args, errc);
SAME_PLACE(plait_ffi_run_id_get_t, run_id, XLA_FFI_RunId_Get_Args, run_id);
SAME_PLACE(plait_ffi_ordinal_get_t, device_ordinal, XLA_FFI_DeviceOrdinal_Get_Args,
           device_ordinal);
SAME_VALUE(PLAIT_FFI_FRAME_SIZE, XLA_FFI_CallFrame_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_VERSION_SIZE, XLA_FFI_Api_Version_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_ERROR_CREATE_SIZE, XLA_FFI_Error_Create_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_ORDINAL_GET_SIZE, XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_RUN_ID_GET_SIZE, XLA_FFI_RunId_Get_Args_STRUCT_SIZE);
SAME_VALUE(PLAIT_FFI_EXT_METADATA, XLA_FFI_Extension_Metadata);
SAME_VALUE(PLAIT_FFI_STAGE_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);
SAME_VALUE(PLAIT_FFI_ATTR_ARRAY, XLA_FFI_AttrType_ARRAY);
SAME_VALUE(PLAIT_FFI_ATTR_SCALAR, XLA_FFI_AttrType_SCALAR);
SAME_VALUE(PLAIT_FFI_TOKEN, XLA_FFI_DataType_TOKEN);
SAME_VALUE(PLAIT_FFI_CODE_INVALID_ARGUMENT, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_VALUE(PLAIT_FFI_CODE_DEADLINE_EXCEEDED, XLA_FFI_Error_Code_DEADLINE_EXCEEDED);
SAME_VALUE(PLAIT_FFI_CODE_RESOURCE_EXHAUSTED, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_VALUE(PLAIT_FFI_CODE_FAILED_PRECONDITION, XLA_FFI_Error_Code_FAILED_PRECONDITION);
SAME_VALUE(PLAIT_FFI_CODE_ABORTED, XLA_FFI_Error_Code_ABORTED);
SAME_VALUE(PLAIT_FFI_CODE_UNIMPLEMENTED, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_VALUE(PLAIT_FFI_CODE_INTERNAL, XLA_FFI_Error_Code_INTERNAL);
SAME_VALUE(PLAIT_FFI_CODE_UNAVAILABLE, XLA_FFI_Error_Code_UNAVAILABLE);
SAME_VALUE(PLAIT_BOOL, XLA_FFI_DataType_PRED);
SAME_VALUE(PLAIT_S8, XLA_FFI_DataType_S8);
SAME_VALUE(PLAIT_S16, XLA_FFI_DataType_S16);
SAME_VALUE(PLAIT_S32, XLA_FFI_DataType_S32);
SAME_VALUE(PLAIT_S64, XLA_FFI_DataType_S64);
SAME_VALUE(PLAIT_U8, XLA_FFI_DataType_U8);
SAME_VALUE(PLAIT_U16, XLA_FFI_DataType_U16);
SAME_VALUE(PLAIT_U32, XLA_FFI_DataType_U32);
SAME_VALUE(PLAIT_U64, XLA_FFI_DataType_U64);
SAME_VALUE(PLAIT_F16, XLA_FFI_DataType_F16);
SAME_VALUE(PLAIT_F32, XLA_FFI_DataType_F32);
SAME_VALUE(PLAIT_F64, XLA_FFI_DataType_F64);
SAME_VALUE(PLAIT_C64, XLA_FFI_DataType_C64);
SAME_VALUE(PLAIT_BF16, XLA_FFI_DataType_BF16);
SAME_VALUE(PLAIT_C128, XLA_FFI_DataType_C128);
SAME_VALUE(PLAIT_F8E5M2, XLA_FFI_DataType_F8E5M2);
SAME_VALUE(PLAIT_F8E4M3FN, XLA_FFI_DataType_F8E4M3FN);
