/* What stands for every library of a driver: it can be loaded, and says which version it is of. */

int cuInit(unsigned flags) {
    return (int)flags;
}

const char *stub_version(void) {
    return VERSION;
}
