# SPDX-License-Identifier: MIT
from celery import shared_task

task_acks_late = True
task_time_limit = 300
broker_transport_options = {"visibility_timeout": 3600}


@shared_task(autoretry_for=(ConnectTimeout,), max_retries=3, retry_backoff=True)
def charge(order_no):
    pay(order_no)
