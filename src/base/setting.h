/* Environment variables whose values are names. */
#ifndef PLAIT_BASE_SETTING_H
#define PLAIT_BASE_SETTING_H

/* The place of the variable's value among `choices`, which NULL ends; lower and upper case are the
 * same. `usual` where it is not set, or empty, or none of them, of which the log warns once. */
int plait_setting(const char *variable, const char *const choices[], int usual);

#endif
