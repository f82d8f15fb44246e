# SPDX-License-Identifier: MIT
from celery import shared_task


@shared_task(autoretry_for=(ConnectTimeout,), max_retries=3, default_retry_delay=5)
def charge(order_no):
    post(order_no)


@shared_task(autoretry_for=(Timeout,), max_retries=3, retry_backoff=True)
def fetch_rates():
    get("/rates")


@shared_task(autoretry_for=(ConnectTimeout,), retry_kwargs={"max_retries": 2, "countdown": 0})
def send(order_no):
    post(order_no)
