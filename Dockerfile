# The server with a bundle: docker build -t breakeven . && docker run --read-only --tmpfs /tmp -p 8080:8080 \
#   -v "$PWD/runs/trec/bundle:/bundle:ro" breakeven /bundle --variant student-int8 --host 0.0.0.0
FROM python:3.11-slim AS build
WORKDIR /build
COPY . .
# Only the serve extra, in the locked versions: no torch, no transformers.
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --constraint requirements.lock '.[serve]'

FROM python:3.11-slim
COPY --from=build /venv /venv
# A number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 10001:10001
WORKDIR /
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/v2/health/ready', timeout=2)"]
ENTRYPOINT ["python", "-m", "serve"]
CMD ["/bundle", "--host", "0.0.0.0"]
