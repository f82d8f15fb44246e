# SPDX-License-Identifier: MIT
from celery import Celery
app = Celery("orders")


@app.task(
    autoretry_for=(Exception,),
    max_retries=10,
    retry_backoff=2,
    retry_jitter=False,
)
def create_order(order_no):
    post(order_no)


@app.task(autoretry_for=(Timeout,), max_retries=None, retry_backoff=True)
def charge(order_no):
    post(order_no)
