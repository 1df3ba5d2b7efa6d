/* What stands for every library of a driver: it can be loaded, and says which version it is of. */

#include <string.h>

int cuInit(unsigned flags) {
    return (int)flags;
}

int nvmlInit_v2(void) {
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    if (size < sizeof VERSION)
        return 7;
    memcpy(text, VERSION, sizeof VERSION);
    return 0;
}
