/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/tensormsg.h - the whole library in one include. */
#ifndef TENSORMSG_TENSORMSG_H
#define TENSORMSG_TENSORMSG_H

#include <tensormsg/api.h>
#include <tensormsg/bell.h>
#include <tensormsg/call.h>
#include <tensormsg/context.h>
#include <tensormsg/device.h>
#include <tensormsg/devices.h>
#include <tensormsg/dlpack.h>
#include <tensormsg/domain.h>
#include <tensormsg/dtype.h>
#include <tensormsg/endpoint.h>
#include <tensormsg/file.h>
#include <tensormsg/incoming.h>
#include <tensormsg/interceptor.h>
#include <tensormsg/json.h>
#include <tensormsg/key.h>
#include <tensormsg/limits.h>
#include <tensormsg/listener.h>
#include <tensormsg/log.h>
#include <tensormsg/map.h>
#include <tensormsg/message.h>
#include <tensormsg/meta.h>
#include <tensormsg/metrics.h>
#include <tensormsg/offer.h>
#include <tensormsg/publisher.h>
#include <tensormsg/reflect.h>
#include <tensormsg/request.h>
#include <tensormsg/server.h>
#include <tensormsg/shareable.h>
#include <tensormsg/signature.h>
#include <tensormsg/span.h>
#include <tensormsg/status.h>
#include <tensormsg/stream.h>
#include <tensormsg/tensor.h>
#include <tensormsg/tls.h>
#include <tensormsg/trace.h>
#include <tensormsg/version.h>
#include <tensormsg/worker.h>

#endif
