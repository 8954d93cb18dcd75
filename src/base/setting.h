/* Environment variables whose values are names. */
#ifndef PLAIT_BASE_SETTING_H
#define PLAIT_BASE_SETTING_H

#include "plait/status.h"

#include <stdbool.h>

/* The index of a text among `choices`, which NULL ends; lower and upper case are the same. -1: it is none of
 * them. */
int plait_setting_find(const char *text, const char *const choices[]);

/* The index of the variable's value among `choices`, as above; `usual` if the variable is not set, is empty, or
 * has another value, of which the log warns once. */
int plait_setting(const char *variable, const char *const choices[], int usual);

/* A switch that is off if nothing is set: 1, true, on; 0, false, off. The variable's name must stay valid as
 * long as the process lives. */
PLAIT_EXPORT bool plait_setting_is_on(const char *variable);

/* Whether a value that may also be a name chosen by the user is one of the words for off, or for on; in such a
 * variable "./off" is a name. */
bool plait_setting_means_off(const char *text);
bool plait_setting_means_on(const char *text);

#endif
