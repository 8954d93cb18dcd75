/* Environment variables whose values are names. */
#ifndef PLAIT_BASE_SETTING_H
#define PLAIT_BASE_SETTING_H

#include "plait/status.h"

#include <stdbool.h>

/* The place of a text among `choices`, which NULL ends; lower and upper case are the same. -1: it is none
 * of them. */
int plait_setting_find(const char *text, const char *const choices[]);

/* The place of the variable's value among `choices`, as above; `usual` where it is not set, or empty, or
 * none of them, of which the log warns once. */
int plait_setting(const char *variable, const char *const choices[], int usual);

/* Of a switch that is off where nothing is set: 1, true, on; 0, false, off. The variable's name stays
 * where it is as long as the process lives. */
PLAIT_EXPORT bool plait_setting_is_on(const char *variable);

/* Whether a value that may also be a name of the user's is one of the words for off, or for on; in such
 * a variable "./off" is a name. */
bool plait_setting_means_off(const char *text);
bool plait_setting_means_on(const char *text);

#endif
