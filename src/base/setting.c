#include "base/setting.h"

#include "base/log.h"
#include "base/text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Words of switches: N_OFF words for off, then the words for on. */
enum { N_OFF = 3 };
static const char *const words[] = {"0", "false", "off", "1", "true", "on", NULL};

/* Whether no warning about this variable, a literal, has been given yet. */
static bool is_news(const char *variable)
{
    enum { MANY = 16 };
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const char *known[MANY];
    int i = 0;

    (void)pthread_mutex_lock(&mutex);
    while (i < MANY && known[i] != NULL && strcmp(known[i], variable) != 0) {
        i++;
    }
    bool is_new = i < MANY && known[i] == NULL;
    if (is_new) {
        known[i] = variable;
    }
    (void)pthread_mutex_unlock(&mutex);
    return is_new;
}

static void warn(const char *variable, const char *text, const char *const choices[],
                 int usual)
{
    char names[128] = "";

    for (int i = 0; choices[i] != NULL; i++) {
        const char *before = (i == 0) ? "" : (choices[i + 1] != NULL) ? ", " : " or ";
        plait_text_append(names, sizeof(names), "%s%s", before, choices[i]);
    }
    plait_log(PLAIT_LOG_WARN, "%s is '%.40s': expected %s; %s is taken", variable, text,
              names, choices[usual]);
}

int plait_setting_find(const char *text, const char *const choices[])
{
    int i = 0;

    while (choices[i] != NULL && strcasecmp(text, choices[i]) != 0) {
        i++;
    }
    return (choices[i] != NULL) ? i : -1;
}

int plait_setting(const char *variable, const char *const choices[], int usual)
{
    const char *text = getenv(variable);
    const bool is_set = text != NULL && text[0] != '\0';
    const int found = is_set ? plait_setting_find(text, choices) : usual;

    if (found < 0 && is_news(variable)) {
        warn(variable, text, choices, usual);
    }
    return (found < 0) ? usual : found;
}

bool plait_setting_is_on(const char *variable)
{
    return plait_setting(variable, words, 0) >= N_OFF;
}

bool plait_setting_means_off(const char *text)
{
    const int i = plait_setting_find(text, words);

    return i >= 0 && i < N_OFF;
}

bool plait_setting_means_on(const char *text)
{
    return plait_setting_find(text, words) >= N_OFF;
}
