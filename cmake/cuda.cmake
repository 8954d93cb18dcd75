# The sources of CUDA's kernels, which NVRTC compiles at run time, as one array of bytes in the library.
# The folder's files have no #include: this is the order in which they make one program.
set(plait_cuda_parts
  src/device/element.h
  src/device/cuda/params.h
  src/device/cuda/lane.cu
  src/device/cuda/boxes.cu
  src/device/cuda/reduce.cu
  src/device/cuda/scale.cu
  src/device/cuda/matrix.cu)

set(plait_cuda_bytes "")
foreach(part IN LISTS plait_cuda_parts)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${part})
  file(READ ${part} part_bytes HEX)
  string(APPEND plait_cuda_bytes ${part_bytes})
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," plait_cuda_bytes ${plait_cuda_bytes})
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
       "\\1\n" plait_cuda_bytes ${plait_cuda_bytes})
set(plait_cuda_source ${PROJECT_BINARY_DIR}/cuda_source.c)
file(CONFIGURE OUTPUT ${plait_cuda_source} @ONLY CONTENT
"#include \"device/cuda_code.h\"

const unsigned char plait_cuda_source[] = {
@plait_cuda_bytes@0};
")
