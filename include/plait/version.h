/* Version of the headers that a program was compiled with, and of the library that it runs with. */
#ifndef PLAIT_VERSION_H
#define PLAIT_VERSION_H

#include "plait/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_VERSION_MAJOR 0
#define PLAIT_VERSION_MINOR 1
#define PLAIT_VERSION_PATCH 0

/** The library's version, "major.minor.patch". A program needs the major version of its headers, before 1.0
 *  also the minor version.
 *  Collective: no.  Shapes: none.  Owns: nothing; static.  Errors: none.  Source: semver.org 2.0. */
PLAIT_EXPORT const char *plait_version(void);

#ifdef __cplusplus
}
#endif
#endif
