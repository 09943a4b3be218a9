/* Trireme's public API. */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#define TRIREME_VERSION "0.1.0"

#include "trireme/comm.h"
#include "trireme/session.h"
#include "trireme/settings.h"
#include "trireme/status.h"

#endif
