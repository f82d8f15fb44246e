# SPDX-License-Identifier: MIT
# celeryconfig
task_acks_late = True
task_reject_on_worker_lost = True
task_time_limit = 7200
broker_transport_options = {"visibility_timeout": 3600}
