/* Trireme's public API. */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include "trireme/comm.h"
#include "trireme/run.h"
#include "trireme/session.h"
#include "trireme/settings.h"
#include "trireme/status.h"
#include "trireme/version.h"

#endif
